// Which processes still run. Every process writes heartbeats through a separate store connection, from a thread that neither computes nor waits
// in collectives; whoever waits reads them. Only changes count, on the reader's clock: the clocks of hosts may differ by hours.
import { inTime, log, messageOf, pause } from '../core/index.ts'
import { native } from '../engine/index.ts'
import type { Rank } from './environment.ts'
import { PeerFailure } from './failure.ts'
import { nameOf, type PeerNote, type PeerProcess, parseBeat, rootCause, type Sighting } from './root-cause.ts'

/** Time for a last message to the store, in ms: whoever waits for this process should not wait long. */
const shutdownMs = 2000
/** How often a wait asks the store whether a peer failed, in ms; one key, so that many ranks may ask. */
const watchEvery = 200
/** Looks between two looks at the heartbeats of all. */
const beatsEvery = 5
/** Heartbeats that a peer may miss before it is reported, and before it counts as lost. */
const [reportAfter, lostAfter] = [3, 6]
/** Set by the first rank that fails. */
const failedKey = 'failed'

interface Seen {
  text: string | null
  /** Observed ms without a new heartbeat; a reader that was stopped itself has observed nothing. */
  silent: number
}

export class Liveness {
  readonly #place: Rank
  readonly #store: number
  readonly #beatSeconds: number
  #peers: readonly PeerProcess[] = []
  #step = 0
  #phase = 'start'
  readonly #seen: Seen[]
  readonly #reported = new Set<number>()
  /** What waits for a collective, to be ended by a failure; one watch for all of them. */
  readonly #waiting = new Set<(failure: PeerFailure) => void>()
  #watch: NodeJS.Timeout | undefined
  #tickedAt = 0
  #sinceBeats = 0
  #looks = 0
  #looking = false
  /** Observed ms since the store was asked without an answer. */
  #unanswered = 0

  constructor(place: Rank, store: number, beatSeconds: number) {
    this.#place = place
    this.#store = store
    this.#beatSeconds = beatSeconds
    this.#seen = Array.from({ length: place.size }, () => ({ text: null, silent: 0 }))
  }

  set peers(peers: readonly PeerProcess[]) {
    this.#peers = peers
  }

  get where(): string {
    return `step ${this.#step} (${this.#phase})`
  }

  set(key: string, value: string): Promise<void> {
    return native().storeSet(this.#store, key, value)
  }

  get(key: string): Promise<string | null> {
    return native().storeGet(this.#store, key)
  }

  /** From now on heartbeats say this; they are written beside the engine, also while it computes. */
  note(step: number, phase: string): void {
    this.#step = step
    this.#phase = phase
    native().storeBeat(this.#store, `beat/${this.#place.rank}`, `${step} ${phase}`, this.#beatSeconds * 1000)
  }

  /** The work, or the failure of a peer that is noticed before. */
  async orFailure<T>(work: Promise<T>): Promise<T> {
    let tell: (failure: PeerFailure) => void = () => undefined
    const noticed = new Promise<never>((_, reject) => {
      tell = reject
    })
    noticed.catch(() => undefined)
    this.#waiting.add(tell)
    if (!this.#watch) this.#begin()
    try {
      return await Promise.race([work, noticed])
    } finally {
      this.#waiting.delete(tell)
      if (this.#waiting.size === 0) this.#end()
    }
  }

  #begin(): void {
    this.#tickedAt = performance.now()
    this.#watch = setInterval(() => this.#tick(), watchEvery)
  }

  #end(): void {
    clearInterval(this.#watch)
    this.#watch = undefined
    this.#unanswered = 0
  }

  #tick(): void {
    const now = performance.now()
    const observed = Math.min(now - this.#tickedAt, 1000)
    this.#tickedAt = now
    this.#sinceBeats += observed
    if (this.#looking) this.#unanswered += observed
    else void this.#look()
    if (this.#unanswered > this.#lostMs && this.#peers.length > 0) this.#endWaiting(this.#storeLost())
  }

  get #lostMs(): number {
    return 1000 * lostAfter * this.#beatSeconds
  }

  async #look(): Promise<void> {
    this.#looking = true
    try {
      const failed = await this.get(failedKey)
      this.#unanswered = 0
      if (failed === null && ++this.#looks % beatsEvery !== 0) return
      const sighting = await this.#sight()
      if (failed !== null) this.#endWaiting(new PeerFailure(rootCause(sighting, this.#place.rank, 'a peer failed')))
      else this.#checkSilence(sighting)
    } catch (error) {
      log.debug(`store: ${messageOf(error)}`) // a lost store fails at the collective itself
    } finally {
      this.#looking = false
    }
  }

  #endWaiting(failure: PeerFailure): void {
    for (const tell of this.#waiting) tell(failure)
  }

  #storeLost(): PeerFailure {
    const seconds = Math.round(this.#unanswered / 1000)
    return new PeerFailure(
      `${nameOf(this.#peers, 0)} has not answered for ${seconds} s: its host or the network between is down (${this.where})`,
    )
  }

  /** A peer that is silent for long ends the wait of everybody. */
  #checkSilence(sighting: Sighting): void {
    if (sighting.silent.some((ms) => ms > this.#lostMs))
      this.#endWaiting(new PeerFailure(rootCause(sighting, this.#place.rank, this.where)))
    else this.#reportSilence(sighting)
  }

  /** Rank 0 reports for all; if it is silent itself, rank 1 does. */
  #reportSilence({ silent, beats }: Sighting): void {
    const isLong = (ms: number | undefined) => (ms ?? 0) > 1000 * reportAfter * this.#beatSeconds
    if (this.#place.rank > 0 && !(this.#place.rank === 1 && isLong(silent[0]))) return
    for (const [rank, ms] of silent.entries()) {
      const beat = beats[rank]
      if (!beat || !isLong(ms) || this.#reported.has(rank)) continue
      this.#reported.add(rank)
      const seconds = Math.round(ms / 1000)
      log.warn(`${nameOf(this.#peers, rank)} silent for ${seconds} s, last phase ${beat.phase}, step ${beat.step}`)
    }
  }

  /** What can be seen of the others; without the store, the little that this host knows. */
  async #sight(): Promise<Sighting> {
    const ranks = Array.from({ length: this.#place.size }, (_, r) => r)
    const notes = await Promise.all(ranks.map((r) => this.get(`fail/${r}`)))
    const texts = await Promise.all(ranks.map((r) => this.get(`beat/${r}`)))
    this.#compareBeats(texts)
    return {
      notes: notes.flatMap((text) => (text === null ? [] : [JSON.parse(text) as PeerNote])),
      beats: texts.map((text, r) => (text === null ? null : parseBeat(r, text))),
      peers: this.#peers,
      silent: this.#seen.map(({ silent }) => silent),
      beatSeconds: this.#beatSeconds,
    }
  }

  #compareBeats(texts: readonly (string | null)[]): void {
    const observed = this.#sinceBeats
    this.#sinceBeats = 0
    for (const [rank, text] of texts.entries()) {
      const isNews = rank === this.#place.rank || text === null || text !== this.#seen[rank]!.text
      if (isNews) this.#reported.delete(rank)
      this.#seen[rank] = { text, silent: isNews ? 0 : this.#seen[rank]!.silent + observed }
    }
  }

  /** Why a collective failed, as far as it can be known in two seconds. */
  async causeOf(text: string): Promise<string> {
    await pause(100) // a killed process is seen as dead once its parent has taken note
    const blind = { notes: [], beats: [], peers: this.#peers, silent: [], beatSeconds: this.#beatSeconds }
    const sighting = await within(this.#sight(), shutdownMs).catch(() => blind)
    return rootCause(sighting, this.#place.rank, text)
  }

  /** Leaves a note for the others. */
  async fail(error: unknown): Promise<void> {
    const afterPeer = error instanceof PeerFailure
    const at = { rank: this.#place.rank, step: this.#step, phase: this.#phase }
    const note: PeerNote = { ...at, message: messageOf(error), afterPeer }
    const written = this.set(`fail/${this.#place.rank}`, JSON.stringify(note)).then(() => this.set(failedKey, 'yes'))
    await within(written, shutdownMs).catch(() => undefined)
  }

  close(): void {
    this.#end()
    native().storeClose(this.#store)
  }
}

/** The work, or an error after so many ms. */
export function within<T>(work: Promise<T>, ms: number): Promise<T> {
  return inTime(work, ms, () => {
    throw new Error(`no answer within ${ms / 1000} s`)
  })
}
