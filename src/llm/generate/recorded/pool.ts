import { cuda } from '../../../tensor/index.ts'
import type { Decoder } from '../../model.ts'
import { CacheMemory } from '../fused/cache-memory.ts'
import { type FusedSize, hasRoomFor } from '../fused/caches.ts'
import { FusedState } from '../fused/state.ts'
import { forgetWeights } from '../fused/weights.ts'
import { cudaRecorder, DecodeState, type Recorder, roundedColumns } from './state.ts'

/** Shapes kept at a time: two loops, each with the policy's samples and the EMA copy's answers. */
const maxStates = 4

type Kept = DecodeState | FusedState

const ownsMemory = (state: Kept): boolean => !(state instanceof FusedState) || state.memory.users === 1

/**
 * Decode states by shape, the latest used last. They are few and their caches take at most a tenth of the GPU's memory; what does not fit goes,
 * oldest first. A state does not belong to a role: policy and EMA copy decode with the same one. States of our kernels have their caches in
 * one memory, since one at a time decodes; while one decodes, the next gets separate memory.
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

  /** The same for decoding with the custom kernels. One with more room than requested serves as well; those that the new one replaces go. */
  takeFused(decoder: Decoder, size: FusedSize): FusedState {
    const serves = (s: Kept): s is FusedState => s instanceof FusedState && !s.memory.busy && hasRoomFor(s.size, size)
    return this.#take(decoder, serves, () => {
      const own = this.#states.filter((s) => s instanceof FusedState && s.decoder === decoder && !s.memory.busy)
      const shared = (own[0] as FusedState | undefined)?.memory ?? new CacheMemory(decoder.placement)
      const made = new FusedState(decoder, size, shared)
      this.#drop(own.filter((s) => hasRoomFor(size, (s as FusedState).size)))
      return made
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
    this.#shrink(this.#byteLimit(state.decoder.placement.device), maxStates)
  }

  /** Frees every state, or those of one decoder, before its weights go. */
  clear(decoder?: Decoder): void {
    this.#drop(this.#states.filter((s) => !decoder || s.decoder === decoder))
    forgetWeights(decoder)
  }

  #makeRoom(device: string): void {
    this.#shrink(this.#byteLimit(device), maxStates - 1)
  }

  /** The one that was used last stays, whatever its size; so do those whose memory others need as well, as far as bytes are concerned. */
  #shrink(bytes: number, count: number): void {
    for (;;) {
      const idle = this.#states.slice(0, -1).filter((s) => !s.busy)
      const tooMuch = this.#states.length > 1 && this.#bytes > bytes
      const oldest = this.#states.length > count ? idle[0] : tooMuch ? idle.find(ownsMemory) : undefined
      if (!oldest) return
      this.#drop([oldest])
    }
  }

  get #bytes(): number {
    const caches = new Set(this.#states.map((s) => (s instanceof FusedState ? s.memory : s)))
    return [...caches].reduce((sum, { bytes }) => sum + bytes, 0)
  }

  #drop(some: readonly Kept[]): void {
    for (const state of some) state.dispose()
    this.#states = this.#states.filter((s) => !some.includes(s))
  }
}

/** The process's own, on CUDA. */
export const decodePool = new DecodePool(cudaRecorder, (device) => cuda.memory(device).total / 10)
