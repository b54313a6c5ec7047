// The groups of this process, and the store they meet at. A failed collective is reported with its cause: which rank, since when.
import { log, Mismatch, messageOf, refuseAt, timerMs } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { deviceIndex, itemBytes, type Tensor } from '../tensor/index.ts'
import { type BackendName, chooseBackend } from './backend.ts'
import type { Meeting, Rank } from './environment.ts'
import { PeerFailure } from './failure.ts'
import { Liveness, within } from './liveness.ts'
import { type FindFacts, meet, openStore, ownAddress } from './meeting.ts'

export interface GroupOptions {
  /** What sends CUDA tensors. */
  backend: BackendName
  /** Until all processes have met, in seconds. */
  rendezvous: number
  /** For one collective, in seconds. */
  collective: number
  /** Between heartbeats, in seconds. A process that misses six of them counts as lost. */
  beat: number
}

export const defaultOptions: GroupOptions = { backend: 'auto', rendezvous: 300, collective: 600, beat: 5 }

export class Link {
  readonly place: Rank
  /** Bytes handed to collectives so far. */
  sent = 0
  readonly #options: GroupOptions
  readonly #store: number
  readonly #liveness: Liveness
  readonly #address: string
  #gloo = -1
  #nccl = -1
  /** What sends CUDA tensors; null: not decided yet. */
  cudaBackend: 'gloo' | 'nccl' | null = null
  #failure: PeerFailure | null = null

  private constructor(place: Rank, options: GroupOptions, store: number, liveness: Liveness, address: string) {
    this.place = place
    this.#options = options
    this.#store = store
    this.#liveness = liveness
    this.#address = address
  }

  /** Meets the others: registrations are compared before any group is opened, so that a link exists on all ranks or on none. */
  static async open(place: Rank, meeting: Meeting, options: GroupOptions, findFacts: FindFacts): Promise<Link> {
    const store = await openStore(place, meeting, options.rendezvous)
    // heartbeats have a separate connection: a group that waits in the store would stop them
    const guest = meeting.kind === 'tcp' ? { ...meeting, server: false } : meeting
    const liveness = new Liveness(place, await openStore(place, guest, options.rendezvous), options.beat)
    try {
      const link = new Link(place, options, store, liveness, await ownAddress(place, meeting))
      link.note(0, 'start')
      const facts = await findFacts()
      liveness.peers = await liveness.orFailure(meet(place, liveness, facts, options.rendezvous))
      link.#gloo = await link.#open('gloo')
      return link
    } catch (error) {
      if (!(error instanceof PeerFailure)) await liveness.fail(error)
      liveness.close()
      native().storeClose(store)
      throw error
    }
  }

  async #open(backend: 'gloo' | 'nccl'): Promise<number> {
    const { rank, size } = this.place
    const limit = timerMs(this.#options.collective * 1000)
    const opened = native().groupOpen(this.#store, backend, rank, size, this.#address, limit)
    try {
      return await this.#liveness.orFailure(within(opened, timerMs(this.#options.rendezvous * 1000)))
    } catch (error) {
      if (error instanceof PeerFailure) throw error
      const hint = 'all hosts must reach each other at this address; GLOO_SOCKET_IFNAME names another interface'
      return refuseAt('world')(backend, `connections at ${this.#address}`, error, hint)
    }
  }

  note(step: number, phase: string): void {
    this.#liveness.note(step, phase)
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

  /** Decides what sends CUDA tensors; all ranks together. `gpus`: those of all ranks. */
  async openCuda(device: string, gpus: readonly string[]): Promise<void> {
    const backend = chooseBackend(this.#options.backend, gpus, native().groupBackends().split(' '))
    if (backend === 'nccl') {
      native().groupDevice(deviceIndex(device))
      this.#nccl = await this.#open('nccl')
    }
    this.cudaBackend = backend
    if (this.place.rank === 0) log.info(`CUDA tensors of ${gpus.length} processes are sent by ${backend}`)
  }

  async #watched(what: string, work: Promise<void>): Promise<void> {
    try {
      await this.#liveness.orFailure(work)
    } catch (error) {
      await this.#lost(what, error)
    }
  }

  /** The first failure ends the link: ranks may differ from here on. */
  async #lost(what: string, error: unknown): Promise<never> {
    if (this.#failure) throw this.#failure
    const text = `${what} of ${this.#liveness.where}: ${messageOf(error)}`
    const early = error instanceof PeerFailure
    this.#failure = early ? error : new PeerFailure(text)
    if (early) await this.#liveness.fail(error) // before the abort, for which the others would blame this rank
    for (const group of [this.#gloo, this.#nccl]) if (group >= 0) native().groupAbort(group)
    if (!early) {
      this.#failure = new PeerFailure(await this.#liveness.causeOf(text))
      await this.#liveness.fail(this.#failure)
    }
    throw this.#failure
  }

  /** Leaves a note for the others, unless there is one already. */
  async fail(error: unknown): Promise<void> {
    if (!this.#failure) await this.#liveness.fail(error)
  }

  /** After a barrier. What failed is left to the end of the process: its peers would be waited for. */
  async close(): Promise<void> {
    if (this.#failure) return
    for (const group of [this.#nccl, this.#gloo]) if (group >= 0) await native().groupClose(group)
    this.#liveness.close()
    native().storeClose(this.#store)
  }
}
