// Decoding by kernels of ours: one recorded step for all tokens, which reads its clock from memory. What prompts left is kept once for all
// rows that continue it. R rows, P prompts, K key/value heads, D head size, S hidden, I feed-forward.
import { DecodeKernels, shareOf } from '../../kernels/index.ts'
import { CudaGraph, empty, keep, noGrad, type Tensor, tensor, tidy, zeros } from '../../tensor/index.ts'
import type { DecodeStart } from './decode-step.ts'
import { DeviceDraws, type DrawPlan, planKey, type Taken } from './draws.ts'
import {
  currentWeights,
  type FusedWeights,
  fingerprint,
  type LayerWeights,
  paddedHead,
  shapeOf,
} from './fused-weights.ts'
import type { Decoder } from './model.ts'
import { PackedCache } from './packed-cache.ts'

export interface FusedSize {
  rows: number
  prompts: number
  /** Neighbouring rows of one prompt that are read together. */
  share: number
  /** Columns for prompts, and for new tokens. */
  room: number
  ownRoom: number
}

interface Caches {
  promptKeys: Tensor // [P, K, room, D]
  promptValues: Tensor
  ownKeys: Tensor // [R, K, ownRoom, D]
  ownValues: Tensor
}

/** Prompts of a step are of similar length, those of the next a little longer: room for both is made at once. */
const roomStep = { prompts: 256, own: 64 }
const rounded = (n: number, step: number) => Math.ceil(n / step) * step

/** Whether a state of one size can do what another is asked for: kernels read as far as a prompt goes, whatever room there is. */
export function hasRoomFor(have: FusedSize, asked: FusedSize): boolean {
  const alike = have.rows === asked.rows && have.prompts === asked.prompts && have.share === asked.share
  return alike && have.room >= asked.room && have.ownRoom >= asked.ownRoom
}

/** The prompt of each row. */
function promptOfRows({ rows, next }: DecodeStart): number[] {
  return rows ? tidy(() => rows.numbers()) : next.map((_, r) => r)
}

export function sizeOf({ cfg }: Decoder, start: DecodeStart, newTokens: number): FusedSize {
  const of = promptOfRows(start)
  const alike = (n: number) => of.length % n === 0 && of.every((prompt, r) => prompt === of[r - (r % n)])
  const share = shareOf([1, 2, 4].filter(alike), of.length, cfg.num_key_value_heads)
  const prompts = start.cache.batch
  const room = rounded(start.columns, roomStep.prompts)
  return { rows: of.length, prompts, share, room, ownRoom: rounded(newTokens, roomStep.own) }
}

interface Recorded {
  graph: CudaGraph
  never: Tensor | null
}

export class FusedState {
  readonly decoder: Decoder
  readonly size: FusedSize
  busy = false
  readonly #kernels: DecodeKernels
  readonly #draws: DeviceDraws
  readonly #prompts: Tensor // [L, 2, P, K, room, D]
  readonly #own: Tensor // [L, 2, R, K, ownRoom, D]
  readonly #caches: Caches[]
  readonly #promptOf: Tensor // [R / share] int32
  readonly #promptLength: Tensor // [P] int32
  readonly #position: Tensor // [R] int32
  readonly #turns: Tensor
  readonly #arrived: Tensor
  readonly #h: Tensor // [R, S]
  readonly #normed: Tensor // [R, S]
  readonly #qkv: Tensor // [R, (H + 2K) D]
  readonly #attended: Tensor // [R, H D]
  readonly #inner: Tensor // [R, I]
  readonly #scores: Tensor | null // [R, V up to a multiple of 8], for our own product
  readonly #partial: { values: Tensor; ml: Tensor }
  readonly #recordings = new Map<string, Recorded>()
  #weights: FusedWeights | undefined
  #fingerprint = ''
  #plan = ''
  #started = 0

  constructor(decoder: Decoder, size: FusedSize) {
    const { device, dtype } = decoder.placement
    const shape = shapeOf(decoder)
    const { hidden, inner, heads, groups, dim } = shape
    const { rows: R, prompts: P, share, room, ownRoom } = size
    const make = (...sizes: number[]) => keep(zeros(sizes, { device, dtype }))
    const ints = (n: number) => keep(zeros([n], { device, dtype: 'int32' }))
    this.decoder = decoder
    this.size = size
    this.#kernels = new DecodeKernels(shape, { rows: R, share }, device)
    this.#draws = new DeviceDraws(R, hidden, decoder.placement)
    const layers = decoder.cfg.num_hidden_layers
    this.#prompts = make(layers, 2, P, groups, room, dim)
    this.#own = make(layers, 2, R, groups, ownRoom, dim)
    this.#caches = Array.from({ length: layers }, (_, i) => {
      const part = (all: Tensor, which: number) => keep(tidy(() => all.select(0, i).select(0, which)))
      return {
        ...{ promptKeys: part(this.#prompts, 0), promptValues: part(this.#prompts, 1) },
        ...{ ownKeys: part(this.#own, 0), ownValues: part(this.#own, 1) },
      }
    })
    this.#promptOf = ints(R / share)
    this.#promptLength = ints(P)
    this.#position = ints(R)
    this.#arrived = ints(1)
    this.#turns = keep(noGrad(() => decoder.turns(room + ownRoom)))
    this.#h = make(R, hidden)
    this.#normed = make(R, hidden)
    this.#qkv = make(R, (heads + 2 * groups) * dim)
    this.#attended = make(R, heads * dim)
    this.#inner = make(R, inner)
    this.#scores = this.#kernels.own ? make(R, Math.ceil(decoder.cfg.vocab_size / 8) * 8) : null
    const [values, ml] = this.#kernels.partialSizes.map((n) => keep(empty([n], { device, dtype: 'float32' })))
    this.#partial = { values: values!, ml: ml! }
  }

  get bytes(): number {
    return 2 * (this.#prompts.numel + this.#own.numel)
  }

  /** Takes over what was read of the prompts; the caller's cache may go afterwards. */
  begin(start: DecodeStart, { plan, first }: { plan: DrawPlan; first: readonly number[] }): void {
    this.#load()
    this.#prepare(plan)
    const of = promptOfRows(start)
    tidy(() => {
      this.#copyPrompts(start, of)
      const units = of.filter((_, r) => r % this.size.share === 0)
      this.#promptOf.copy_(tensor(Int32Array.from(units)), { nonBlocking: true })
      this.#position.copy_(tensor(Int32Array.from(start.next)), { nonBlocking: true })
      const { device } = this.#h
      this.#h.copy_(this.decoder.embed(tensor(BigInt64Array.from(first, BigInt), { device })))
    })
    this.#draws.begin()
  }

  /** Lets the device read the rows' tokens and draw the next ones, `steps` times. `numbers` [steps, R] decide them; none when greedy. */
  start(steps: number, numbers: Float64Array | null): void {
    if (numbers) this.#draws.give(numbers)
    const { graph } = this.#recordings.get(this.#plan)!
    for (let i = 0; i < steps; i++) graph.replay()
    this.#started = steps
  }

  /** Waits for the steps that were started. */
  look(): Taken {
    return this.#draws.read(this.#started)
  }

  /** Columns of padding are left out: the rest of a prompt moves together. */
  #copyPrompts(start: DecodeStart, of: readonly number[]): void {
    const { cache } = start
    if (cache instanceof PackedCache) {
      cache.copyInto(this.#prompts)
      this.#promptLength.copy_(tensor(Int32Array.from(start.lengths!)), { nonBlocking: true })
      return
    }
    const { chosen, lengths } = this.#withoutPadding(start, of)
    const longest = Math.max(...lengths)
    this.#promptLength.copy_(tensor(Int32Array.from(lengths)), { nonBlocking: true })
    const copy = (to: Tensor, from: Tensor) =>
      tidy(() => {
        const [P, K, , D] = from.shape as [number, number, number, number]
        const read = chosen ? from.gather(2, chosen.expand([P, K, longest, D])) : from.slice({ dim: 2, end: longest })
        to.slice({ dim: 2, end: longest }).copy_(read)
      })
    this.#caches.forEach(({ promptKeys, promptValues }, i) => {
      copy(promptKeys, cache.keys[i]!)
      copy(promptValues, cache.values[i]!)
    })
  }

  /** The columns of each prompt that are no padding, [P, 1, longest, 1], and how many; null: all of them. */
  #withoutPadding(
    { valid, columns }: DecodeStart,
    of: readonly number[],
  ): { chosen: Tensor | null; lengths: number[] } {
    const { prompts: P } = this.size
    const rows = Array.from({ length: P }, (_, p) => of.indexOf(p))
    const seen = valid ? tidy(() => valid.numbers()) : null
    const kept = rows.map((r) => {
      const all = Array.from({ length: columns }, (_, c) => c)
      return seen ? all.filter((c) => seen[r * columns + c]) : all
    })
    const longest = Math.max(...kept.map((list) => list.length))
    const index = new BigInt64Array(P * longest)
    kept.forEach((list, p) => {
      for (let i = 0; i < list.length; i++) index[p * longest + i] = BigInt(list[i]!)
    })
    const chosen = seen ? tensor(index, [P, 1, longest, 1], { device: this.#h.device }) : null
    return { chosen, lengths: kept.map((list) => list.length) }
  }

  /** A recording holds for weights at the same places, whatever their values. */
  #load(): void {
    const now = fingerprint(this.decoder)
    if (this.#weights && now === this.#fingerprint) return
    this.#forget()
    this.#weights = currentWeights(this.decoder)
    this.#fingerprint = now
  }

  /** Recording runs the step, so that it comes before anything of the call is in place. */
  #prepare(plan: DrawPlan): void {
    this.#plan = planKey(plan)
    this.#draws.begin()
    if (this.#recordings.has(this.#plan)) return
    const { device } = this.#h
    const never = plan.never.length > 0 ? keep(tensor(Int32Array.from(plan.never), { device })) : null
    const step = () => void this.#step(plan.temperature, never)
    const { graph } = CudaGraph.capture(step as () => unknown, { device })
    this.#recordings.set(this.#plan, { graph, never })
  }

  #step(temperature: number | null, never: Tensor | null): void {
    const scores = this.#kernels.own ? this.#ownStep() : this.#libraryStep()
    const { clock, numbers, ids, logps, drawnLogps } = this.#draws
    this.#kernels.draw({
      scores,
      vocabulary: this.decoder.cfg.vocab_size,
      temperature: temperature ?? 1,
      numbers: temperature === null ? null : numbers,
      never,
      clock,
      ids,
      logps,
      drawnLogps,
      embedding: this.#weights!.embedding,
      h: this.#h,
      arrived: this.#arrived,
    })
  }

  /** Products of ours, the norms and sums around them inside. */
  #ownStep(): Tensor {
    const [k, h, eps] = [this.#kernels, this.#h, this.decoder.cfg.rms_norm_eps]
    const { layers, norm, head } = this.#weights!
    layers.forEach((w, i) => {
      k.qkv(w.qkv, h, w.inputNorm, eps, w.bias, this.#qkv)
      this.#attend(i, w, this.#qkv)
      k.attentionOut(w.out, this.#attended, h)
      k.gateUp(w.gateUp, h, w.outputNorm, eps, this.#inner)
      k.down(w.down, this.#inner, h)
    })
    k.addNorm(h, null, norm, eps, this.#normed, this.#keptStates)
    k.head(head, this.#normed, this.#scores!)
    return this.#scores!
  }

  /** Products of the library, what stands between them in kernels of ours. */
  #libraryStep(): Tensor {
    const [k, h, x, eps] = [this.#kernels, this.#h, this.#normed, this.decoder.cfg.rms_norm_eps]
    const { layers, norm, head } = this.#weights!
    k.addNorm(h, null, layers[0]!.inputNorm, eps, x)
    layers.forEach((w, i) => {
      this.#attend(i, w, x.linear(w.qkv, { bias: w.bias }))
      k.addNorm(h, this.#attended.linear(w.out), w.outputNorm, eps, x)
      k.swiglu(x.linear(w.gateUp), this.#inner)
      const y = this.#inner.linear(w.down)
      const next = layers[i + 1]
      if (next) k.addNorm(h, y, next.inputNorm, eps, x)
      else k.addNorm(h, y, norm, eps, x, this.#keptStates)
    })
    return x.linear(paddedHead(this.decoder, head))
  }

  get #keptStates() {
    return { states: this.#draws.states, raw: this.decoder.givesRawStates, clock: this.#draws.clock }
  }

  #attend(layer: number, { queryNorm, keyNorm }: LayerWeights, qkv: Tensor): void {
    this.#kernels.attend(
      {
        qkv,
        out: this.#attended,
        ...this.#caches[layer]!,
        promptOf: this.#promptOf,
        promptLength: this.#promptLength,
        clock: this.#draws.clock,
        position: this.#position,
        turns: this.#turns,
        queryNorm,
        keyNorm,
        eps: this.decoder.cfg.rms_norm_eps,
      },
      this.#partial,
    )
  }

  #forget(): void {
    for (const { graph, never } of this.#recordings.values()) {
      graph.dispose()
      never?.dispose()
    }
    this.#recordings.clear()
    this.#weights = undefined
  }

  dispose(): void {
    this.#forget()
    this.#draws.dispose()
    const own = [this.#promptOf, this.#promptLength, this.#position, this.#arrived, this.#turns, this.#h, this.#normed]
    const more = [this.#qkv, this.#attended, this.#inner, this.#scores, ...Object.values(this.#partial)]
    for (const t of [
      ...own,
      ...more,
      this.#prompts,
      this.#own,
      ...this.#caches.flatMap((c) => Object.values(c) as Tensor[]),
    ])
      t?.dispose()
  }
}
