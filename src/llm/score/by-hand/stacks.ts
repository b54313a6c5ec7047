// Weights as a training pass reads them. The linear layers of one input are stacked in one matrix, with the rows of their adapters' s A
// below them: one product gives y and t = s A x. The layers' weights are views of that matrix. r rank, n layers of a stack.
import { type AdapterState, isPacked, type Linear, packedWeight, packInPlace } from '../../../nn/index.ts'
import { cat, copyAll, keep, scaleAll, stack, type Tensor, tidyNoGrad, zeros } from '../../../tensor/index.ts'
import type { Span } from './attention-calls.ts'

/** One linear layer of a stack: the columns of its outputs and of its adapter's in a product. */
export interface Part {
  readonly linear: Linear
  readonly start: number
  readonly rows: number
  /** First column of its t. */
  readonly down: number
}

/** Outputs that go through B together: their columns, those of their t, and B of all of them, in blocks on the diagonal. */
export interface Block {
  readonly rows: Span
  readonly downs: Span
  readonly up: Tensor // [rows, downs]
}

/** Up to here zeros beside the blocks cost less than a product for each. */
const smallRows = 4096

export class Stack {
  readonly parts: readonly Part[]
  /** 0: layers without adapters. */
  readonly rank: number
  /** Outputs of the linear layers; after them come n r columns of their adapters. */
  readonly rows: number
  readonly weight: Tensor // [rows + n r, in]
  readonly base: Tensor // [rows, in]: without adapters
  readonly bias: Tensor | null // [rows + n r], zeros after the layers' own
  readonly baseBias: Tensor | null
  readonly blocks: readonly Block[]
  readonly #views: Tensor[] = []
  /** Handles of the layers' weights as this stack created them. */
  readonly #handles: readonly number[]
  readonly #downViews: readonly Tensor[]
  readonly #upViews: readonly Tensor[]

  /** `blocks`: zeros for B of all parts on a diagonal, which are filled together with those of other layers. */
  constructor(linears: readonly Linear[], rank: number, blocks: Tensor | null = null) {
    let start = 0
    this.rank = rank
    this.parts = linears.map((linear, i) => {
      const rows = linear.weight.size(0)
      start += rows
      return { linear, start: start - rows, rows, down: i * rank }
    })
    this.rows = start
    const extra = linears.length * rank
    const { device, dtype } = linears[0]!.weight
    const like = { device, dtype }
    const width = linears[0]!.weight.size(1)
    const withRoom = () => tidyNoGrad(() => cat([...linears.map((l) => l.weight), zeros([extra, width], like)]))
    if (rank === 0 && !isPacked(linears)) packInPlace(linears) // as decoding would: they are moved once
    this.weight = keep(rank > 0 ? withRoom() : packedWeight(linears))
    const biases = linears.map((l) => l.bias ?? null)
    const whole = (tail: number) =>
      cat([...this.parts.map(({ rows }, i) => biases[i] ?? zeros([rows], like)), zeros([tail], like)])
    const biased = biases.some((b) => b !== null)
    this.bias = biased ? keep(tidyNoGrad(() => whole(extra))) : null
    this.baseBias = biased ? keep(tidyNoGrad(() => whole(0))) : null
    this.base = this.#view(this.weight.narrow(0, 0, start))
    const adapted = rank > 0 ? this.parts : []
    this.#downViews = adapted.map(({ down }) => this.#view(this.weight.narrow(0, start + down, rank)))
    this.#upViews = blocks ? [] : adapted.map(({ rows }) => this.#view(zeros([rows, rank], like)))
    this.blocks = blocks
      ? [{ rows: [0, start], downs: [start, extra], up: this.#view(blocks) }]
      : adapted.map((p, i) => ({ rows: [p.start, p.rows], downs: [start + p.down, rank], up: this.#upViews[i]! }))
    for (const { linear, start: from, rows } of adapted) {
      linear.weight.dispose()
      linear.weight = keep(this.weight.narrow(0, from, rows))
    }
    this.#handles = linears.map(({ weight }) => weight.handle)
  }

  #view(t: Tensor): Tensor {
    this.#views.push(keep(t))
    return t
  }

  /** Whether the layers still have the weights of this stack: merged or loaded ones are others. */
  get inPlace(): boolean {
    return this.parts.every(({ linear }, i) => linear.weight.handle === this.#handles[i])
  }

  /** Whether nothing but these adapters trains; `records`: and they do. */
  trainsAdapters(adapter: AdapterState, records: boolean): boolean {
    return this.parts.every(({ linear: { weight, lora_A, lora_B, adapter: own } }) => {
      if (weight.requiresGrad) return false
      if (this.rank === 0) return !lora_A
      if (own !== adapter || !lora_A || !lora_B) return false
      return !records || (lora_A.weight.requiresGrad && lora_B.weight.requiresGrad)
    })
  }

  /** What the adapters' values are copied into, part by part. */
  get copies(): { down: readonly Tensor[]; up: readonly Tensor[] } {
    return { down: this.#downViews, up: this.#upViews }
  }

  /** Freed with it. */
  owns(...tensors: readonly Tensor[]): void {
    this.#views.push(...tensors)
  }

  dispose(): void {
    for (const t of [this.weight, this.bias, this.baseBias, ...this.#views]) t?.dispose()
  }
}

/** The four stacks of a layer, by what they read. */
export interface LayerStacks {
  readonly qkv: Stack
  readonly o: Stack
  readonly gateUp: Stack
  readonly down: Stack
}

/** Stacks of one kind, one of each layer. */
export interface StackSet {
  readonly stacks: readonly Stack[]
  /** Where B of one linear layer in each of them goes, if they lie together: [layers, rows, r]. */
  readonly together: readonly { readonly linears: readonly Linear[]; readonly up: Tensor }[]
}

export function stackSet(layers: readonly (readonly Linear[])[], rank: number): StackSet {
  const [first] = layers as [readonly Linear[]]
  const rows = first.reduce((sum, { weight }) => sum + weight.size(0), 0)
  if (rank === 0 || rows > smallRows) return { stacks: layers.map((linears) => new Stack(linears, rank)), together: [] }
  const { device, dtype } = first[0]!.weight
  const room = keep(zeros([layers.length, rows, first.length * rank], { device, dtype }))
  const stacks = layers.map(
    (linears, i) =>
      new Stack(
        linears,
        rank,
        tidyNoGrad(() => room.select(0, i)),
      ),
  )
  const together = stacks[0]!.parts.map(({ start, rows: own, down }, j) => {
    const up = tidyNoGrad(() => room.narrow(1, start, own).narrow(2, down, rank))
    return { linears: layers.map((linears) => linears[j]!), up: keep(up) }
  })
  stacks[0]!.owns(room, ...together.map(({ up }) => up))
  return { stacks, together }
}

/** Adapters of one role: the tensors that train, in the order of the parts that they go to. */
export interface Masters {
  readonly downs: readonly Tensor[]
  readonly ups: readonly Tensor[]
  /** Of `together`. */
  readonly many: readonly (readonly Tensor[])[]
}

export function mastersOf(sets: readonly StackSet[]): Masters {
  const linears = (some: readonly StackSet[]) =>
    some.flatMap(({ stacks }) => stacks.flatMap((s) => (s.rank > 0 ? s.parts.map(({ linear }) => linear) : [])))
  const up = (linear: Linear) => linear.lora_B!.weight
  const apart = sets.filter(({ together }) => together.length === 0)
  return {
    downs: linears(sets).map((linear) => linear.lora_A!.weight),
    ups: linears(apart).map(up),
    many: sets.flatMap(({ together }) => together.map((one) => one.linears.map(up))),
  }
}

/** Puts the adapters' values into the stacks, in the dtype of the pass: A times its scale, B as it is. */
export function loadAdapters(sets: readonly StackSet[], { downs, ups, many }: Masters, { scale }: AdapterState): void {
  const copies = sets.flatMap(({ stacks }) => stacks.map((s) => s.copies))
  const [down, up] = [copies.flatMap((c) => c.down), copies.flatMap((c) => c.up)]
  const together = sets.flatMap((set) => set.together)
  tidyNoGrad(() => {
    copyAll(down, downs)
    copyAll(up, ups)
    for (const [i, values] of many.entries()) together[i]!.up.copy_(stack(values))
    if (scale !== 1) scaleAll(down, scale)
  })
}
