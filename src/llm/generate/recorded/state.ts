// Decoding with CUDA graphs: buffers, key/value cache and the captured step of one shape are kept across calls. A captured step is bound
// to addresses, so everything that differs between calls, rows, roles and updates is copied into fixed buffers.
// R rows, S hidden, V vocabulary.
import { kernelsOff, quantizedProductOn } from '../../../kernels/index.ts'
import { type KVCache, linears, type Slot, tensorAt, withProduct, withWeights } from '../../../nn/index.ts'
import {
  aten,
  CudaGraph,
  empty,
  int64Tensor,
  isFloating,
  keep,
  type Tensor,
  tensor,
  tidy,
  zeros,
} from '../../../tensor/index.ts'
import type { Decoder } from '../../model.ts'
import type { DecodeStart } from '../decoding.ts'
import { columnsOf } from '../fused/packed-cache.ts'
import { DeviceDraws, type DrawPlan, planKey, type Scores, type Taken } from './draws.ts'

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

/**
 * The weights a recorded step reads. Those that train or are stored in another dtype (adapters, masters) are copied once per call, in the
 * dtype of the activations; the others are read where they are, and must still be there when the recording is used again.
 */
class PinnedWeights {
  readonly #decoder: Decoder
  readonly #pinned = new Map<string, { slot: Slot; buffer: Tensor }>()
  #fixed = new Map<string, number>()
  #switches = ''

  constructor(decoder: Decoder) {
    this.#decoder = decoder
  }

  /** Takes the values of the model as it is now, in whatever role. False: an earlier recording is not valid for it. */
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
    const slots = [...this.#pinned.values()].map(({ slot }) => slot)
    const buffers = new Map([...this.#pinned].map(([name, { buffer }]) => [name, buffer]))
    return withWeights(slots, buffers, fn)
  }

  #matches(slots: readonly Slot[]): boolean {
    if (slots.length !== this.#pinned.size + this.#fixed.size) return false
    return slots.every((slot) => {
      const pinned = this.#pinned.get(slot.name)
      return pinned ? pinned.slot.owner === slot.owner : this.#fixed.get(slot.name) === tensorAt(slot).handle
    })
  }

  /** Which adapters take part, and how; whether the custom kernels may. */
  #switchesNow(): string {
    const all = linears(this.#decoder.module).map(([, { lora_A, adapter }]) =>
      lora_A && adapter?.enabled ? `${adapter.scale},${adapter.dropout}` : '',
    )
    return [...all, kernelsOff()].join(';')
  }

  #plan(slots: readonly Slot[]): void {
    const { device, dtype } = this.#decoder.placement
    const before = { pinned: new Set(this.#pinned.keys()), fixed: this.#fixed }
    this.dispose()
    for (const slot of slots) {
      const value = tensorAt(slot)
      const moved = before.fixed.has(slot.name) && before.fixed.get(slot.name) !== value.handle
      const changes = value.dtype !== dtype || value.requiresGrad || moved || before.pinned.has(slot.name)
      if (changes && isFloating(value.dtype))
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

/** Recordings of a state kept at a time: draws of the policy, greedy answers, and one more. */
const maxRecordings = 3

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
  readonly #draws: DeviceDraws
  /** By what follows the scores: nothing, or draws of a plan. The latest is the last. */
  readonly #recordings = new Map<string, Recording & { never: Tensor | null }>()
  #plan: string | undefined
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
    this.#draws = new DeviceDraws(rows, decoder.cfg.hidden_size, decoder.placement)
  }

  get bytes(): number {
    return this.#cache.bytes
  }

  /** Takes over what was read of the prompts; the caller's cache may go afterwards. With a plan and each row's first id: for `start`. */
  begin(
    { cache, rows, valid, next, columns }: DecodeStart,
    draws?: { plan: DrawPlan; first: readonly number[] },
  ): void {
    if (!this.#weights.load()) this.#forget()
    if (draws) this.#prepare(draws.plan)
    const back = draws ? 0 : 1 // `run` moves before it reads
    const read = columnsOf(cache)
    tidy(() => {
      this.#cache.copyFrom(read, columns, rows)
      if (draws) this.#setTokens(draws.first)
      const positions = next.map((n) => n - back)
      this.#position.copy_(int64Tensor(positions, [this.rows, 1]))
      this.#column.fill_(columns - back)
      this.#visible.fill_(false)
      const prompt = this.#visible.slice({ dim: 3, end: columns })
      if (valid) prompt.copy_(valid.view([this.rows, 1, 1, columns]))
      else prompt.fill_(true)
    })
    if (read !== cache) read.dispose()
    this.#draws.begin()
    this.#next = columns
  }

  /** Reads one token per row. */
  run(ids: readonly number[]): Scores {
    tidy(() => {
      this.#setTokens(ids)
      this.#position.add_(1)
      this.#column.add_(1)
      this.#visible.slice({ dim: 3, start: this.#next, end: this.#next + 1 }).fill_(true)
    })
    this.#next++
    const { result, replay } = this.#recorded('', null, () => this.#step())
    replay()
    return { hidden: result.hidden.clone(), logits: result.logits.clone() }
  }

  /** Lets the device read the rows' tokens and draw the next ones, `steps` times. `numbers` [steps, R] decide them; none when greedy. */
  start(steps: number, numbers: Float64Array | null): void {
    if (numbers) this.#draws.give(numbers)
    const { replay } = this.#recordings.get(this.#plan!)!
    for (let i = 0; i < steps; i++) replay()
  }

  /** What the last `steps` steps draw, once they are done; steps may be started before it is called. */
  look(steps: number): () => Taken {
    return this.#draws.read(steps)
  }

  #setTokens(ids: readonly number[]): void {
    this.#token.copy_(int64Tensor(ids, [ids.length, 1]))
  }

  /** Recording runs the step, so that it comes before anything of the call is in place. */
  #prepare(plan: DrawPlan): void {
    this.#plan = planKey(plan)
    for (const t of [this.#token, this.#position, this.#column]) t.fill_(0)
    const barred = BigInt64Array.from(plan.never, BigInt)
    const { device } = this.#cache
    const never = barred.length > 0 && !this.#recordings.has(this.#plan) ? keep(tensor(barred, { device })) : null
    this.#recorded(this.#plan, never, () => this.#drawStep(plan.temperature, never))
  }

  #recorded(key: string, never: Tensor | null, step: () => Scores): Recording {
    const known = this.#recordings.get(key)
    if (!known && this.#recordings.size >= maxRecordings) this.#drop(this.#recordings.keys().next().value!)
    this.#recordings.delete(key)
    const made = known ?? { ...this.#weights.with(() => this.#record(step, this.#cache.device)), never }
    this.#recordings.set(key, made)
    return made
  }

  #step(): Scores {
    const { decoder } = this
    const x = decoder.embed(this.#token) // [R, 1, S]
    const at = { positions: this.#position, mask: this.#visible, cache: this.#cache, columns: this.#column }
    const hidden = withProduct(quantizedProductOn(x.device), () => decoder.forward(x, at)).squeeze(1)
    return { hidden, logits: decoder.logits(hidden) }
  }

  #drawStep(temperature: number | null, never: Tensor | null): Scores {
    aten('index_fill_', this.#visible, 3, this.#column, true)
    const scores = this.#step()
    this.#token.copy_(this.#draws.take(scores, temperature, never).unsqueeze(1))
    this.#position.add_(1)
    this.#column.add_(1)
    return scores
  }

  #drop(key: string): void {
    const { dispose, result, never } = this.#recordings.get(key)!
    dispose()
    for (const t of [result.hidden, result.logits, never]) t?.dispose()
    this.#recordings.delete(key)
  }

  #forget(): void {
    for (const key of [...this.#recordings.keys()]) this.#drop(key)
  }

  dispose(): void {
    this.#forget()
    this.#weights.dispose()
    this.#draws.dispose()
    this.#cache.dispose()
    for (const t of [this.#token, this.#position, this.#column, this.#visible]) t.dispose()
  }
}
