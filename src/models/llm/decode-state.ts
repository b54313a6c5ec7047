// Decoding on a device that records: buffers, key/value cache and the recorded step of one shape stay across calls. A recorded step is
// bound to addresses, so everything that differs between calls, rows, roles and updates is copied into buffers that stay in place.
// R rows, S hidden, V vocabulary.
import { type KVCache, linears, type Slot, tensorAt, withWeights } from '../../nn/index.ts'
import { CudaGraph, empty, isFloating, keep, type Tensor, tensor, tidy, zeros } from '../../tensor/index.ts'
import type { DecodeStart, Scores } from './decode-step.ts'
import type { Decoder } from './model.ts'

/** A step that was run once and can be run again without the host; `result` is overwritten each time. */
export interface Recording {
  readonly result: Scores
  replay(): void
  dispose(): void
}

export type Recorder = (step: () => Scores, device: string) => Recording

/** Captures a CUDA graph. */
export const cudaRecorder: Recorder = (step, device) => {
  const { graph, result } = CudaGraph.capture(step, { device })
  return { result, replay: () => graph.replay(), dispose: () => graph.dispose() }
}

interface Pinned {
  slot: Slot
  buffer: Tensor
}

/**
 * The weights a recorded step reads. Those that train or are held in another dtype (adapters, masters) are copied once per call, in the
 * dtype of the activations; the others are read where they are, and must still be there when the recording is used again.
 */
class PinnedWeights {
  readonly #decoder: Decoder
  readonly #pinned = new Map<string, Pinned>()
  #fixed = new Map<string, number>()
  #switches = ''

  constructor(decoder: Decoder) {
    this.#decoder = decoder
  }

  /** Takes the values of the model as it is now, in whatever role. False: a recording made before does not hold for it. */
  load(): boolean {
    const slots = this.#decoder.module.slots()
    const fits = this.#switches === this.#switchesNow() && this.#matches(slots)
    if (!fits) this.#plan(slots)
    const at = new Map(slots.map((slot) => [slot.name, slot]))
    tidy(() => {
      for (const [name, pinned] of this.#pinned) pinned.buffer.copy_(tensorAt(at.get(name)!))
    })
    return fits
  }

  /** Runs `fn` with the buffers in place of the weights they copy. */
  with<R>(fn: () => R): R {
    const pinned = [...this.#pinned]
    return withWeights(
      pinned.map(([, { slot }]) => slot),
      new Map(pinned.map(([name, { buffer }]) => [name, buffer])),
      fn,
    )
  }

  #matches(slots: readonly Slot[]): boolean {
    if (slots.length !== this.#pinned.size + this.#fixed.size) return false
    return slots.every((slot) => {
      const pinned = this.#pinned.get(slot.name)
      return pinned ? pinned.slot.owner === slot.owner : this.#fixed.get(slot.name) === tensorAt(slot).handle
    })
  }

  /** Which adapters take part, and how. */
  #switchesNow(): string {
    const all = linears(this.#decoder.module).map(([, { lora_A, adapter }]) =>
      lora_A && adapter?.enabled ? `${adapter.scale},${adapter.dropout}` : '',
    )
    return all.join(';')
  }

  #plan(slots: readonly Slot[]): void {
    const { device, dtype } = this.#decoder.placement
    const before = { pinned: new Set(this.#pinned.keys()), fixed: this.#fixed }
    this.dispose()
    for (const slot of slots) {
      const value = tensorAt(slot)
      const moved = before.fixed.has(slot.name) && before.fixed.get(slot.name) !== value.handle
      const other = isFloating(value.dtype) && value.dtype !== dtype
      if (other || value.requiresGrad || moved || before.pinned.has(slot.name))
        this.#pinned.set(slot.name, { slot, buffer: keep(empty([...value.shape], { device, dtype })) })
      else this.#fixed.set(slot.name, value.handle)
    }
    this.#switches = this.#switchesNow()
  }

  dispose(): void {
    for (const { buffer } of this.#pinned.values()) buffer.dispose()
    this.#pinned.clear()
    this.#fixed = new Map()
  }
}

/** Columns of a cache come in steps of this, so that prompts of similar length share a recording. */
const columnStep = 64

export function roundedColumns(columns: number): number {
  return Math.ceil(columns / columnStep) * columnStep
}

/** What one shape needs to decode: (decoder, rows, capacity). */
export class DecodeState {
  readonly decoder: Decoder
  readonly rows: number
  readonly capacity: number
  busy = false
  readonly #record: Recorder
  readonly #cache: KVCache
  readonly #token: Tensor // [R, 1]
  readonly #position: Tensor // [R, 1]
  readonly #column: Tensor // [1]
  readonly #visible: Tensor // [R, 1, 1, capacity]
  readonly #weights: PinnedWeights
  #recording: Recording | undefined
  #next = 0

  constructor(decoder: Decoder, rows: number, capacity: number, record: Recorder) {
    this.decoder = decoder
    this.rows = rows
    this.capacity = capacity
    this.#record = record
    this.#cache = decoder.emptyCache(rows, capacity)
    const { device } = this.#cache
    this.#token = keep(zeros([rows, 1], { dtype: 'int64', device }))
    this.#position = keep(zeros([rows, 1], { dtype: 'int64', device }))
    this.#column = keep(zeros([1], { dtype: 'int64', device }))
    this.#visible = keep(zeros([rows, 1, 1, capacity], { dtype: 'bool', device }))
    this.#weights = new PinnedWeights(decoder)
  }

  get bytes(): number {
    return this.#cache.bytes
  }

  /** Takes over what was read of the prompts; the caller's cache may go afterwards. */
  begin({ cache, rows, valid, next, columns }: DecodeStart): void {
    if (!this.#weights.load()) this.#forget()
    tidy(() => {
      this.#cache.copyFrom(cache, columns, rows)
      this.#position.copy_(
        tensor(
          BigInt64Array.from(next, (n) => BigInt(n - 1)),
          [this.rows, 1],
        ),
      )
      this.#column.fill_(columns - 1)
      this.#visible.fill_(false)
      const prompt = this.#visible.slice({ dim: 3, end: columns })
      if (valid) prompt.copy_(valid.view([this.rows, 1, 1, columns]))
      else prompt.fill_(true)
    })
    this.#next = columns
  }

  run(ids: readonly number[]): Scores {
    tidy(() => {
      this.#token.copy_(tensor(BigInt64Array.from(ids, BigInt), [ids.length, 1]))
      this.#position.add_(1)
      this.#column.add_(1)
      this.#visible.slice({ dim: 3, start: this.#next, end: this.#next + 1 }).fill_(true)
    })
    this.#next++
    this.#recording ??= this.#weights.with(() => this.#record(() => this.#step(), this.#cache.device))
    this.#recording.replay()
    const { hidden, logits } = this.#recording.result
    return { hidden: hidden.clone(), logits: logits.clone() }
  }

  #step(): Scores {
    const { decoder } = this
    const x = decoder.embed(this.#token) // [R, 1, S]
    const hidden = decoder
      .forward(x, { positions: this.#position, mask: this.#visible, cache: this.#cache, columns: this.#column })
      .squeeze(1)
    return { hidden, logits: decoder.logits(hidden) }
  }

  #forget(): void {
    this.#recording?.dispose()
    this.#recording?.result.hidden.dispose()
    this.#recording?.result.logits.dispose()
    this.#recording = undefined
  }

  dispose(): void {
    this.#forget()
    this.#weights.dispose()
    this.#cache.dispose()
    for (const t of [this.#token, this.#position, this.#column, this.#visible]) t.dispose()
  }
}
