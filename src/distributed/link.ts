// This process's connections to the store and the groups. Collective errors name the failing rank and the time.
import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns/promises'
import { hostname, networkInterfaces } from 'node:os'
import { log, Mismatch, messageOf, timerMs } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { itemBytes, type Tensor } from '../tensor/index.ts'
import type { Meeting, Place } from './environment.ts'
import { PeerFailure } from './failure.ts'
import { type PeerNote, type PeerProcess, parseBeat, rootCause, type Sighting } from './root-cause.ts'

export interface Limits {
  /** Until all processes have met, in seconds. */
  rendezvous: number
  /** For one collective, in seconds. */
  collective: number
  /** Between heartbeats, in seconds. */
  beat: number
}

export const defaultLimits: Limits = { rendezvous: 300, collective: 600, beat: 5 }

/** Time for a last word to the store, in ms: whoever waits for this process should not wait long. */
const lastWords = 2000

/** How often a wait asks the store whether a peer failed, in ms; one key, so that many ranks may ask. */
const watchEvery = 200
/** Looks between two looks at the heartbeats of all. */
const beatsEvery = 5
/** Set by the first rank that fails. */
const failedKey = 'failed'

export class Link {
  readonly place: Place
  /** Bytes handed to collectives so far. */
  sent = 0
  readonly #limits: Limits
  readonly #store: number
  readonly #address: string
  #gloo = -1
  #nccl = -1
  #peers: PeerProcess[] = []
  #failure: PeerFailure | null = null
  #step = 0
  #phase = 'start'
  #said = new Set<number>()
  /** Callbacks that wait for a collective and receive a failure; one watcher serves all of them. */
  readonly #waiting = new Set<(failure: PeerFailure) => void>()
  #watch: NodeJS.Timeout | undefined
  #looks = 0
  #looking = false

  private constructor(place: Place, limits: Limits, store: number, address: string) {
    this.place = place
    this.#limits = limits
    this.#store = store
    this.#address = address
  }

  /** Meets the others. The last step is a barrier, so that a link exists on all ranks or on none. */
  static async open(place: Place, meeting: Meeting, limits: Limits): Promise<Link> {
    const store = await openStore(place, meeting, limits)
    const link = new Link(place, limits, store, await ownAddress(place, meeting))
    try {
      await link.#meet()
      link.#gloo = await native().groupOpen(
        store,
        'gloo',
        place.rank,
        place.size,
        link.#address,
        timerMs(limits.collective * 1000),
      )
    } catch (error) {
      native().storeClose(store)
      throw error
    }
    return link
  }

  /** Every process registers; an error names the ranks that are missing at the time limit. */
  async #meet(): Promise<void> {
    const { rank, size } = this.place
    this.note(0, 'start')
    await this.set(`process/${rank}`, JSON.stringify({ host: hostname(), pid: process.pid }))
    const deadline = Date.now() + this.#limits.rendezvous * 1000
    const cards: (string | null)[] = new Array(size).fill(null)
    while (cards.includes(null)) {
      for (let r = 0; r < size; r++) cards[r] ??= await this.get(`process/${r}`)
      if (!cards.includes(null)) break
      if (Date.now() > deadline) throw this.#missing(cards)
      await pause(20)
    }
    this.#peers = cards.map((card) => JSON.parse(card!) as PeerProcess)
  }

  #missing(cards: readonly (string | null)[]): PeerFailure {
    const absent = cards.flatMap((card, rank) => (card === null ? [rank] : []))
    const seconds = this.#limits.rendezvous
    return new PeerFailure(
      `after ${seconds} s ranks ${absent.join(', ')} of ${this.place.size} had not come to the meeting`,
    )
  }

  set(key: string, value: string): Promise<void> {
    return native().storeSet(this.#store, key, value)
  }

  get(key: string): Promise<string | null> {
    return native().storeGet(this.#store, key)
  }

  /** Heartbeats report this from now on; a separate thread writes them while the engine computes. */
  note(step: number, phase: string): void {
    this.#step = step
    this.#phase = phase
    native().storeBeat(this.#store, `beat/${this.place.rank}`, `${step} ${phase}`, this.#limits.beat * 1000)
  }

  allReduce(tensor: Tensor): Promise<void> {
    return this.#run('sum', tensor, [tensor], (group) => native().groupAllReduce(group, 'sum'))
  }

  broadcast(tensor: Tensor, root: number): Promise<void> {
    return this.#run('broadcast', tensor, [tensor], (group) => native().groupBroadcast(group, root))
  }

  allGather(input: Tensor, outputs: readonly Tensor[]): Promise<void> {
    return this.#run('gather', input, [input, ...outputs], (group) => native().groupAllGather(group))
  }

  /** Launches at once: the order of calls is the order of collectives. */
  #run(
    what: string,
    like: Tensor,
    tensors: readonly Tensor[],
    launch: (group: number) => Promise<void>,
  ): Promise<void> {
    if (this.#failure) return Promise.reject(this.#failure)
    const group = this.#groupOf(like)
    this.sent += like.numel * itemBytes[like.dtype]
    const handles = tensors.map((t) => t.handle)
    buffer[0] = handles.length
    buffer.set(handles, 1)
    try {
      return this.#watched(what, launch(group))
    } catch (error) {
      return this.#lost(what, error)
    }
  }

  #groupOf(tensor: Tensor): number {
    if (tensor.device === 'cpu') return this.#gloo
    if (this.#nccl >= 0) return this.#nccl
    throw new Mismatch({ where: 'world', expected: 'an open NCCL group for CUDA tensors', got: 'none' })
  }

  /** The group of CUDA tensors, on the current device; all ranks together. */
  async openCuda(device: number): Promise<void> {
    if (this.#nccl >= 0) return
    const backends = native().groupBackends()
    if (!backends.includes('nccl')) {
      const hint = 'use a torch with CUDA and NCCL (docs/engine.md), or train on the CPU'
      throw new Mismatch({ where: 'world', expected: 'a build with NCCL for CUDA tensors', got: backends, hint })
    }
    native().groupDevice(device)
    const { rank, size } = this.place
    this.#nccl = await native().groupOpen(
      this.#store,
      'nccl',
      rank,
      size,
      this.#address,
      timerMs(this.#limits.collective * 1000),
    )
  }

  /** While it waits it checks for failed peers and logs silent ones. */
  async #watched(what: string, work: Promise<void>): Promise<void> {
    let tell: (failure: PeerFailure) => void = () => undefined
    const noticed = new Promise<never>((_, reject) => {
      tell = reject
    })
    noticed.catch(() => undefined)
    this.#waiting.add(tell)
    this.#watch ??= setInterval(() => void this.#look(), watchEvery)
    try {
      await Promise.race([work, noticed])
    } catch (error) {
      await this.#lost(what, error)
    } finally {
      this.#waiting.delete(tell)
      if (this.#waiting.size === 0) {
        clearInterval(this.#watch)
        this.#watch = undefined
      }
    }
  }

  async #look(): Promise<void> {
    if (this.#looking) return
    this.#looking = true
    try {
      const failed = await this.get(failedKey)
      if (failed === null && ++this.#looks % beatsEvery !== 0) return
      const sighting = await this.#sight()
      if (failed === null) return this.#reportSilence(sighting)
      const failure = new PeerFailure(rootCause(sighting, this.place.rank, 'a peer failed'))
      for (const fail of this.#waiting) fail(failure)
    } catch {
      // a lost store fails at the collective itself
    } finally {
      this.#looking = false
    }
  }

  #reportSilence({ beats, now }: Sighting): void {
    const speaker = this.place.rank === 0 || (this.place.rank === 1 && this.#late(beats[0], now))
    for (const beat of speaker ? beats : []) {
      if (!beat || beat.rank === this.place.rank || this.#said.has(beat.rank) || !this.#late(beat, now)) continue
      this.#said.add(beat.rank)
      const seconds = Math.round((now - beat.at) / 1000)
      log.warn(`rank ${beat.rank} silent for ${seconds} s, last phase ${beat.phase}, step ${beat.step}`)
    }
  }

  #late(beat: { at: number } | null | undefined, now: number): boolean {
    return !!beat && now - beat.at > 4000 * this.#limits.beat
  }

  async #sight(): Promise<Sighting> {
    const ranks = Array.from({ length: this.place.size }, (_, r) => r)
    const notes = await Promise.all(ranks.map((r) => this.get(`fail/${r}`)))
    const beats = await Promise.all(ranks.map((r) => this.get(`beat/${r}`)))
    return {
      notes: notes.flatMap((text) => (text === null ? [] : [JSON.parse(text) as PeerNote])),
      beats: beats.map((text, r) => (text === null ? null : parseBeat(r, text))),
      peers: this.#peers,
      now: Date.now(),
      beatSeconds: this.#limits.beat,
    }
  }

  #sightWithoutStore(): Sighting {
    return { notes: [], beats: [], peers: this.#peers, now: Date.now(), beatSeconds: this.#limits.beat }
  }

  /** The first failure ends the link: ranks may differ from here on. */
  async #lost(what: string, error: unknown): Promise<never> {
    if (this.#failure) throw this.#failure
    for (const group of [this.#gloo, this.#nccl]) if (group >= 0) native().groupAbort(group)
    const text = `${what} of step ${this.#step} (${this.#phase}): ${messageOf(error)}`
    const early = error instanceof PeerFailure ? error : null
    this.#failure = early ?? new PeerFailure(text)
    if (!early) {
      await pause(100) // a killed process is seen as dead once its parent has taken note
      const sighting = await within(this.#sight(), lastWords).catch(() => this.#sightWithoutStore())
      this.#failure = new PeerFailure(rootCause(sighting, this.place.rank, text))
    }
    throw this.#failure
  }

  /** Leaves a note for the others, unless it was one of them that failed. */
  async fail(error: unknown): Promise<void> {
    if (this.#failure) return
    const note: PeerNote = { rank: this.place.rank, step: this.#step, phase: this.#phase, message: messageOf(error) }
    const written = this.set(`fail/${this.place.rank}`, JSON.stringify(note)).then(() => this.set(failedKey, 'yes'))
    await within(written, lastWords).catch(() => undefined)
  }

  /** After a barrier. What failed is left to the end of the process: its peers would be waited for. */
  async close(): Promise<void> {
    if (this.#failure) return
    for (const group of [this.#nccl, this.#gloo]) if (group >= 0) await native().groupClose(group)
    native().storeClose(this.#store)
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms))
}

function within<T>(work: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer of the store in ${ms} ms`)), ms)
  })
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}

async function openStore(place: Place, meeting: Meeting, limits: Limits): Promise<number> {
  const ms = limits.rendezvous * 1000
  if (meeting.kind === 'file') return native().fileStore(meeting.path, place.size, place.prefix, ms)
  const { host, port, server } = meeting
  try {
    return await native().tcpStore(host, port, server ? 1 : 0, place.size, place.prefix, ms)
  } catch (error) {
    const field = `MASTER_ADDR=${host} MASTER_PORT=${port}`
    const expected = server ? 'a free port' : 'the store of rank 0'
    const hint = server
      ? 'another run may use this port; set MASTER_PORT'
      : 'rank 0 must run, and its port be reachable'
    throw new Mismatch({ where: 'world', field, expected, got: error, hint })
  }
}

/** The address of this host that the others can reach. */
async function ownAddress(place: Place, meeting: Meeting): Promise<string> {
  const named = process.env['GLOO_SOCKET_IFNAME']
  if (named) return `interface:${named}`
  if (meeting.kind === 'file') return '127.0.0.1'
  const route = await routeTo(meeting.host, meeting.port)
  const oneHost = place.size <= place.localSize
  if (oneHost || !isLoopback(route)) return route
  // the name of this host leads to loopback here, as on many Debian systems, where other hosts cannot follow
  const outer = Object.values(networkInterfaces()).flatMap((all) => all ?? [])
  return outer.find((one) => !one.internal && one.family === 'IPv4')?.address ?? route
}

const isLoopback = (address: string) => address.startsWith('127.') || address === '::1'

/** The own address on the way to a host; nothing is sent. */
async function routeTo(host: string, port: number): Promise<string> {
  const { address, family } = await lookup(host)
  const socket = createSocket(family === 6 ? 'udp6' : 'udp4')
  try {
    await new Promise<void>((done, failed) => {
      socket.once('error', failed)
      socket.connect(port, address, () => done())
    })
    return socket.address().address
  } finally {
    socket.close()
  }
}
