import { cuda } from '../../tensor/index.ts'
import { cudaRecorder, DecodeState, type Recorder, roundedColumns } from './decode-state.ts'
import { type FusedSize, FusedState, hasRoomFor } from './fused-state.ts'
import { forgetWeights } from './fused-weights.ts'
import type { Decoder } from './model.ts'

/** Shapes kept at a time: two loops, each with the policy's samples and the EMA copy's answers. */
const most = 4

type Kept = DecodeState | FusedState

/**
 * Decode states by shape, the latest used last. They are few and their caches take at most a tenth of the card; what does not fit goes,
 * oldest first. A state does not belong to a role: policy and EMA copy decode with the same one.
 */
export class DecodePool {
  readonly #record: Recorder
  readonly #byteLimit: (device: string) => number
  #states: Kept[] = []

  constructor(record: Recorder, byteLimit: (device: string) => number) {
    this.#record = record
    this.#byteLimit = byteLimit
  }

  get size(): number {
    return this.#states.length
  }

  /** A state for the caller alone until release(). */
  take(decoder: Decoder, rows: number, columns: number): DecodeState {
    const capacity = roundedColumns(columns)
    const fits = (s: Kept): s is DecodeState => s instanceof DecodeState && s.rows === rows && s.capacity === capacity
    return this.#take(decoder, fits, () => new DecodeState(decoder, rows, capacity, this.#record))
  }

  /** The same for decoding by kernels of ours. One with more room than is asked for serves as well; those that the new one replaces go. */
  takeFused(decoder: Decoder, size: FusedSize): FusedState {
    const serves = (s: Kept): s is FusedState => s instanceof FusedState && hasRoomFor(s.size, size)
    return this.#take(decoder, serves, () => {
      const replaced = (s: Kept) =>
        s instanceof FusedState && !s.busy && s.decoder === decoder && hasRoomFor(size, s.size)
      this.#drop(this.#states.filter(replaced))
      return new FusedState(decoder, size)
    })
  }

  #take<S extends Kept>(decoder: Decoder, fits: (s: Kept) => s is S, make: () => S): S {
    const found = this.#states.filter((s) => !s.busy && s.decoder === decoder).find(fits)
    this.#states = this.#states.filter((s) => s !== found)
    if (!found) this.#makeRoom(decoder.placement.device)
    const state = found ?? make()
    this.#states.push(state)
    state.busy = true
    return state
  }

  release(state: Kept): void {
    state.busy = false
    this.#shrink(this.#byteLimit(state.decoder.placement.device), most)
  }

  /** Frees every state, or those of one decoder, before its weights go. */
  clear(decoder?: Decoder): void {
    for (const state of this.#states) if (!decoder || state.decoder === decoder) state.dispose()
    this.#states = this.#states.filter((s) => decoder && s.decoder !== decoder)
    forgetWeights(decoder)
  }

  #makeRoom(device: string): void {
    this.#shrink(this.#byteLimit(device), most - 1)
  }

  /** The one that was used last stays, whatever its size. */
  #shrink(bytes: number, count: number): void {
    const total = () => this.#states.reduce((sum, s) => sum + s.bytes, 0)
    while (this.#states.length > count || (this.#states.length > 1 && total() > bytes)) {
      const oldest = this.#states.find((s) => !s.busy)
      if (!oldest) return
      this.#drop([oldest])
    }
  }

  #drop(some: readonly Kept[]): void {
    for (const state of some) state.dispose()
    this.#states = this.#states.filter((s) => !some.includes(s))
  }
}

/** The process's own, on CUDA. */
export const decodePool = new DecodePool(cudaRecorder, (device) => cuda.memory(device).total / 10)
