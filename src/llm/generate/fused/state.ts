// Decoding with the custom kernels: one recorded step for all tokens, which reads its clock from memory. A recording is bound to addresses: it
// is valid while the weights and cache buffers are those it was captured with, and is freed before they are.
// R rows, P prompts, H heads, K key/value heads, D head size, S hidden, I feed-forward.
import { DecodeKernels, FeedForwardTiles, type PieceMemory } from '../../../kernels/index.ts'
import { CudaGraph, int64Tensor, keep, noGrad, type Tensor, tensor, tidy, zeros } from '../../../tensor/index.ts'
import type { Decoder } from '../../model.ts'
import type { DecodeStart } from '../decoding.ts'
import { DeviceDraws, type DrawPlan, planKey, type Taken } from '../recorded/draws.ts'
import type { CacheMemory, CacheUser } from './cache-memory.ts'
import { FusedCaches, type FusedSize, promptOfRows } from './caches.ts'
import { PackedCache } from './packed-cache.ts'
import { openUnits } from './padded-rows.ts'
import {
  currentWeights,
  type FusedWeights,
  type LayerWeights,
  multiply,
  multiplyInParts,
  paddedHead,
  shapeOf,
} from './weights.ts'

interface Recorded {
  graph: CudaGraph
  never: Tensor | null
}

export class FusedState implements CacheUser {
  readonly decoder: Decoder
  readonly size: FusedSize
  /** Of its caches; others use it while this state does not decode. */
  readonly memory: CacheMemory
  busy = false
  readonly #kernels: DecodeKernels
  readonly #tiles: FeedForwardTiles | null
  readonly #draws: DeviceDraws
  #caches: FusedCaches | null = null
  readonly #promptOf: Tensor // [R / share] int32, -1 if no row of the unit is open
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
  readonly #sums: Tensor | null // [parts, R, S], of the tiles
  readonly #pieces: PieceMemory
  readonly #recordings = new Map<string, Recorded>()
  #weights: FusedWeights | null = null
  #plan = ''
  /** The prompt of each unit, and what the device has of it. */
  #units: readonly number[] = []
  #given: readonly number[] = []

  constructor(decoder: Decoder, size: FusedSize, memory: CacheMemory) {
    const { device, dtype } = decoder.placement
    const shape = shapeOf(decoder)
    const { hidden, inner, heads, groups, dim } = shape
    const { rows: R, prompts: P, share, room, ownRoom } = size
    const make = (...sizes: number[]) => keep(zeros(sizes, { device, dtype }))
    const ints = (n: number) => keep(zeros([n], { device, dtype: 'int32' }))
    this.decoder = decoder
    this.size = size
    this.memory = memory
    memory.join(this)
    this.#kernels = new DecodeKernels(shape, { rows: R, share }, device)
    this.#tiles = this.#kernels.own ? null : FeedForwardTiles.of(shape, R, device)
    this.#draws = new DeviceDraws(R, hidden, decoder.placement)
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
    this.#sums = this.#tiles ? keep(this.#tiles.sums(device)) : null
    this.#pieces = this.#kernels.pieceMemory(device)
    for (const t of Object.values(this.#pieces)) keep(t)
  }

  /** Takes over what was read of the prompts; the caller's cache may go afterwards. */
  begin(start: DecodeStart, { plan, first }: { plan: DrawPlan; first: readonly number[] }): void {
    this.#bind()
    this.#load()
    this.#prepare(plan)
    const of = promptOfRows(start)
    this.#units = of.filter((_, r) => r % this.size.share === 0)
    tidy(() => {
      this.#copyPrompts(start, of)
      const { device } = this.#h
      this.#position.copy_(tensor(Int32Array.from(start.next), { device }))
      this.#h.copy_(this.decoder.embed(int64Tensor(first, { device })))
    })
    this.#draws.begin()
  }

  /**
   * Lets the device read the rows' tokens and draw the next ones, `steps` times. `numbers` [steps, R] decide them; none when greedy. A unit
   * without an open row costs no attention and no draws, and leaves nothing; the split of all sums stays, so that others do not feel it.
   */
  start(steps: number, numbers: Float64Array | null, open: readonly boolean[]): void {
    if (numbers) this.#draws.give(numbers)
    this.#give(openUnits(this.#units, this.size.rows, open))
    const { graph } = this.#recordings.get(this.#plan)!
    for (let i = 0; i < steps; i++) graph.replay()
  }

  /** What the last `steps` steps draw, once they are done; steps may be started before it is called. */
  look(steps: number): () => Taken {
    return this.#draws.read(steps)
  }

  #give(units: readonly number[]): void {
    if (units.every((prompt, u) => prompt === this.#given[u])) return
    tidy(() => void this.#promptOf.copy_(tensor(Int32Array.from(units), { device: this.#h.device })))
    this.#given = units
  }

  /** Columns of padding are left out: the rest of a prompt moves together. */
  #copyPrompts(start: DecodeStart, of: readonly number[]): void {
    const { cache } = start
    const { device } = this.#h
    const { prompts, layers } = this.#caches!
    if (cache instanceof PackedCache) {
      cache.copyInto(prompts, this.#kernels)
      this.#promptLength.copy_(tensor(Int32Array.from(start.lengths!), { device }))
      return
    }
    const { chosen, lengths } = this.#withoutPadding(start, of)
    const longest = Math.max(...lengths)
    this.#promptLength.copy_(tensor(Int32Array.from(lengths), { device }))
    const copy = (to: Tensor, from: Tensor) =>
      tidy(() => {
        const [P, K, , D] = from.shape as [number, number, number, number]
        const read = chosen ? from.gather(2, chosen.expand([P, K, longest, D])) : from.slice({ dim: 2, end: longest })
        to.slice({ dim: 2, end: longest }).copy_(read)
      })
    layers.forEach(({ promptKeys, promptValues }, i) => {
      copy(promptKeys, cache.keys[i]!)
      copy(promptValues, cache.values[i]!)
    })
  }

  /** The columns of each prompt that are not padding, [P, 1, longest, 1], and how many; null: all of them. */
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

  #bind(): void {
    const { decoder, size } = this
    const memory = this.memory.get(FusedCaches.elements(decoder, size))
    this.#caches ??= new FusedCaches(memory, decoder, size)
  }

  /** The memory goes: nothing may point into it any more. */
  unbind(): void {
    this.#forget()
    this.#caches?.dispose()
    this.#caches = null
  }

  /** A recording holds for weights at the same places, whatever their values. */
  #load(): void {
    const now = currentWeights(this.decoder)
    if (this.#weights === now) return
    this.#forget()
    this.#weights = now
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
    const quantized = this.#weights!.layers[0]!.quantized !== null
    const scores = this.#kernels.own && !quantized ? this.#ownStep() : this.#libraryStep()
    const { clock, numbers, ids, logps, drawnLogps } = this.#draws
    this.#kernels.draw({
      scores,
      vocabulary: this.decoder.cfg.vocab_size,
      temperature: temperature ?? 1,
      numbers: temperature === null ? null : numbers,
      never,
      promptOf: this.#promptOf,
      clock,
      ids,
      logps,
      drawnLogps,
      embedding: this.#weights!.embedding,
      h: this.#h,
      arrived: this.#arrived,
    })
  }

  /** Custom products, with the norms and sums around them inside. */
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

  /** Products by cuBLAS, in tiles, or with quantized matrices; custom kernels between them. */
  #libraryStep(): Tensor {
    const [k, h, x, eps] = [this.#kernels, this.#h, this.#normed, this.decoder.cfg.rms_norm_eps]
    const { layers, norm, head } = this.#weights!
    k.addNorm(h, null, layers[0]!.inputNorm, eps, x)
    layers.forEach((w, i) => {
      this.#attend(i, w, multiply(x, w, 'qkv'))
      k.addNorm(h, multiplyInParts(this.#attended, w, 'out'), w.outputNorm, eps, x)
      const y = this.#feedForward(x, w)
      const next = layers[i + 1]
      if (next) k.addNorm(h, y, next.inputNorm, eps, x)
      else k.addNorm(h, y, norm, eps, x, this.#keptStates)
    })
    return x.linear(paddedHead(this.decoder, head))
  }

  /** Its result, or the sums of parts of it. */
  #feedForward(x: Tensor, w: LayerWeights): Tensor {
    if (!this.#tiles || w.quantized) {
      this.#kernels.swiglu(multiply(x, w, 'gateUp'), this.#inner)
      return multiplyInParts(this.#inner, w, 'down')
    }
    this.#tiles.gateUp(w.gateUp, x, this.#inner)
    this.#tiles.down(w.down, this.#inner, this.#sums!)
    return this.#sums!
  }

  get #keptStates() {
    return { states: this.#draws.states, raw: this.decoder.givesRawStates, clock: this.#draws.clock }
  }

  #attend(layer: number, { queryNorm, keyNorm }: LayerWeights, qkv: Tensor): void {
    this.#kernels.attend(
      {
        qkv,
        out: this.#attended,
        ...this.#caches!.layers[layer]!,
        promptOf: this.#promptOf,
        promptLength: this.#promptLength,
        clock: this.#draws.clock,
        position: this.#position,
        turns: this.#turns,
        queryNorm,
        keyNorm,
        eps: this.decoder.cfg.rms_norm_eps,
      },
      this.#pieces,
    )
  }

  #forget(): void {
    for (const { graph, never } of this.#recordings.values()) {
      graph.dispose()
      never?.dispose()
    }
    this.#recordings.clear()
  }

  dispose(): void {
    this.unbind()
    this.memory.leave(this)
    this.#draws.dispose()
    const own = [this.#promptOf, this.#promptLength, this.#position, this.#arrived, this.#turns, this.#h, this.#normed]
    const more = [this.#qkv, this.#attended, this.#inner, this.#scores, this.#sums, ...Object.values(this.#pieces)]
    for (const t of [...own, ...more]) t?.dispose()
  }
}
