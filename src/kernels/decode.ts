// The kernels of a decoding step for one shape of decoder. R rows, U units of rows that share a prompt, S hidden, I feed-forward.
import { empty, type Tensor, tidy, zeros } from '../tensor/index.ts'
import { f32, KernelModule, type Launch } from './module.ts'
import { multiprocessors } from './support.ts'
import { kernelTarget } from './target.ts'

export interface DecodeShape {
  hidden: number
  inner: number
  /** Query heads, and key/value heads. */
  heads: number
  groups: number
  /** Of a head. */
  dim: number
}

export interface KernelRows {
  rows: number
  /** Neighbouring rows that continue the same prompt: 1, 2 or 4. */
  share: number
}

/** Above this many rows cuBLAS is as fast as our GEMV kernels. */
const maxRows = 16
const threads = 256

/** Why a shape is not covered; null if it is. */
export function unsupportedShape({ hidden, inner, heads, groups, dim }: DecodeShape): string | null {
  if (dim !== 64 && dim !== 128) return `heads of ${dim}, not 64 or 128`
  if (heads % groups !== 0 || heads / groups > 8) return `${heads} query heads for ${groups} key/value heads`
  if (hidden % 8 !== 0 || inner % 8 !== 0 || hidden > 8192) return `hidden size ${hidden}, feed-forward ${inner}`
  return null
}

const tilesAGroup = (tiles: number): number => {
  let n = Math.ceil(tiles / 32)
  while (tiles % n !== 0) n++
  return n
}

/** Whether our products cover a shape and number of rows: the fragments of a row must fit the registers. */
export function coversProducts({ hidden, inner, heads, groups, dim }: DecodeShape, rows: number): boolean {
  const qkv = (heads + 2 * groups) * dim
  return (
    rows <= maxRows &&
    hidden % 256 === 0 &&
    hidden <= 2048 &&
    inner % 256 === 0 &&
    (heads * dim) % 128 === 0 &&
    tilesAGroup(qkv / 16) <= 5 &&
    tilesAGroup(hidden / 16) <= 5
  )
}

/** The same where we are: they need clusters. */
export const ownProducts = (shape: DecodeShape, rows: number): boolean =>
  kernelTarget().clusters && coversProducts(shape, rows)

/** Units of rows and key/value heads with which attention fills the GPU; two rows that are read together take twice as many in the same time. */
const fullGpu = (share: number) => (share === 2 ? 64 : 32)

/** Of the numbers of neighbours that have the same prompt, the one to read together: few where that leaves enough units, else many. */
export function shareOf(possible: readonly number[], rows: number, groups: number): number {
  const sorted = [...possible].sort((a, b) => a - b)
  return sorted.find((share) => (rows / share) * groups <= fullGpu(share)) ?? sorted.at(-1)!
}

/** Shared memory of a block of attention with so many warps: `share` rows are read together. */
function attentionBytes(share: number, dim: number, readers: number): number {
  const [places, span] = [share * 8, Math.max(16, share * 8)]
  const items = (places * dim) / 4 + 8
  return readers * span * (dim + 2) * 4 + items * 24 + span * (dim + 32) * 2
}

/** Warps of a block of attention: with twelve, one row's prompt is read faster (measured on 9.0 alone). */
const readersOf = (share: number): number => (share === 1 && kernelTarget().clusters ? 12 : 8)

/** Whether the GPU has the shared memory to read so many rows together. */
export const canShare = (share: number, dim: number): boolean =>
  attentionBytes(share, dim, readersOf(share)) <= kernelTarget().shared

/** Blocks a unit and key/value head is split into: enough to fill the GPU, a multiple of the share, at most 8. */
function piecesOf(units: number, share: number): number {
  let pieces = share
  while (pieces < 8 && units * pieces * 2 <= 128) pieces *= 2
  return pieces
}

/** Results of pieces, their maxima and sums, and how many of a unit and key/value head have arrived: 0 between launches. */
export type PieceMemory = Record<'values' | 'ml' | 'arrived', Tensor>

/** What attention reads and writes. */
export interface AttentionInputs {
  qkv: Tensor // [R, (H + 2K) D]
  out: Tensor // [R, H D]
  promptKeys: Tensor // [P, K, room, D]
  promptValues: Tensor
  ownKeys: Tensor // [R, K, ownRoom, D]
  ownValues: Tensor
  promptOf: Tensor // [U] int32; -1: nobody waits for the unit's rows, what it has is left as it is
  promptLength: Tensor // [P] int32
  clock: Tensor // [1] int32: tokens in the own cache before this one
  position: Tensor // [R] int32: of the first own token
  turns: Tensor // [positions, D / 2, 2] float32
  queryNorm: Tensor | null // [D]
  keyNorm: Tensor | null
  eps: number
}

export interface DrawInputs {
  scores: Tensor // [R, stride]
  vocabulary: number
  temperature: number
  /** [T, R] float64; null: greedy. */
  numbers: Tensor | null
  never: Tensor | null // [n] int32
  promptOf: Tensor // [U] int32; rows of a unit with -1 draw nothing
  clock: Tensor
  ids: Tensor // [T, R] int32
  logps: Tensor // [T, R] float32
  drawnLogps: Tensor
  embedding: Tensor // [V, S]
  h: Tensor // [R, S]
  arrived: Tensor // [1] int32, 0
}

/** A shape as the sources name it. */
export const sizesOf = ({ hidden, inner, heads, groups, dim }: DecodeShape) => {
  return { HIDDEN: hidden, INNER: inner, HEADS: heads, GROUPS: groups, DIM: dim }
}

export class DecodeKernels {
  readonly shape: DecodeShape
  readonly rows: number
  readonly share: number
  readonly own: boolean
  readonly pieces: number
  readonly #readers: number
  readonly #module: KernelModule
  readonly #blocks: number

  constructor(shape: DecodeShape, { rows, share }: KernelRows, device: string) {
    this.shape = shape
    this.rows = rows
    this.share = share
    this.own = ownProducts(shape, rows)
    this.pieces = piecesOf((rows / share) * shape.groups, share)
    this.#readers = readersOf(share)
    this.#blocks = multiprocessors(device)
    const sizes = { ...sizesOf(shape), SHARE: share, READERS: this.#readers }
    const sources = ['rows', 'attention', 'draw']
    this.#module = this.own
      ? KernelModule.of(['rows', 'products', 'attention', 'draw'], { ...sizes, TILES: rows > 8 ? 2 : 1 })
      : KernelModule.of(sources, sizes)
  }

  /**
   * Whether the pieces of attention are joined in the kernel, as a cluster: no more than about 120 blocks of clusters run at a time, or 132 of pairs. They
   * leave partial results otherwise, which the last one joins.
   */
  get joinsWhole(): boolean {
    const count = (this.rows / this.share) * this.shape.groups
    return kernelTarget().clusters && count * this.pieces <= (this.pieces === 2 ? 128 : 120)
  }

  /** Memory for the pieces of attention. */
  pieceMemory(device: string): PieceMemory {
    const count = (this.rows / this.share) * this.shape.groups
    const places = count * this.pieces * this.share * 8
    const floats = (n: number) => empty([n], { device, dtype: 'float32' })
    const arrived = zeros([count], { device, dtype: 'int32' })
    return { values: floats(places * this.shape.dim), ml: floats(places * 2), arrived }
  }

  /** h += y, or the sum of its parts [parts, R, S] in float32; out = norm(h). `states` [T, R, S]: the result, or h itself where `raw`, is kept at the clock, round and round. */
  addNorm(
    h: Tensor,
    y: Tensor | null,
    weight: Tensor,
    eps: number,
    out: Tensor,
    keep?: { states: Tensor; raw: boolean; clock: Tensor },
  ): void {
    const block = Math.ceil(this.shape.hidden / 8 / 32) * 32
    const kept = keep ? [keep.states, keep.raw ? 1 : 0, keep.clock, keep.states.size(0)] : [null, 0, null, 1]
    const parts = y?.dtype === 'float32' ? y.size(0) : 0
    this.#module.launch('add_norm', { grid: [this.rows], block }, [h, y, parts, weight, f32(eps), out, ...kept])
  }

  swiglu(both: Tensor, out: Tensor): void {
    const grid = Math.ceil((this.rows * this.shape.inner) / 8 / threads)
    this.#module.launch('swiglu', { grid: [grid], block: threads }, [both, out, this.rows])
  }

  /** Keys and values [L, N, 2K D], row `at` [P * columns] for each column of each prompt, into the first columns of [L, 2, P, K, room, D]. */
  placePrompts(rows: Tensor, at: Tensor, columns: number, into: Tensor): void {
    const pieces = (at.size(0) * rows.size(2)) / 8
    const launch = { grid: [Math.ceil(pieces / threads), rows.size(0)] as const, block: threads }
    this.#module.launch('place_prompts', launch, [rows, at, into, rows.size(1), into.size(2), columns, into.size(4)])
  }

  /** Rotates queries and keys, writes the own cache at the clock, attends. */
  attend(x: AttentionInputs, { values, ml, arrived }: PieceMemory): void {
    const { share, pieces, rows } = this
    const { groups, dim } = this.shape
    const [units, whole] = [rows / share, this.joinsWhole]
    const block = { block: this.#readers * 32, shared: attentionBytes(share, dim, this.#readers) }
    const caches = [x.promptKeys, x.promptValues, x.ownKeys, x.ownValues]
    const norms = [x.queryNorm, x.keyNorm, f32(x.eps)]
    const rooms = [x.promptKeys.size(2), x.ownKeys.size(2)]
    this.#module.launch(
      whole ? 'attention_whole' : 'attention_pieces',
      { grid: [pieces, units * groups], ...block, cluster: whole ? pieces : 1 },
      [
        x.qkv,
        x.out,
        ...caches,
        x.promptOf,
        x.promptLength,
        x.clock,
        x.position,
        x.turns,
        ...norms,
        ...rooms,
        values,
        ml,
        arrived,
      ],
    )
  }

  draw(x: DrawInputs): void {
    const cluster = kernelTarget().clusters ? 8 : 1
    const shared = cluster > 1 ? ((Math.ceil(x.vocabulary / cluster) + 7) & ~7) * 2 : 0
    const scores = [x.scores, x.vocabulary, x.scores.size(1), f32(1 / x.temperature)]
    const choice = [x.numbers, x.never, x.never?.size(0) ?? 0, x.promptOf, x.clock]
    const results = [x.ids, x.logps, x.drawnLogps, x.embedding, x.h, x.arrived, x.ids.size(0)]
    const launch: Launch = { grid: [cluster, this.rows], block: 512, shared, cluster }
    tidy(() => {
      const room = cluster > 1 ? null : empty([...x.scores.shape], { dtype: 'bfloat16', device: x.scores.device })
      this.#module.launch('draw', launch, [...scores, ...choice, ...results, room])
    })
  }

  // Custom products, for few rows.

  /** y = W norm(h) + bias */
  qkv(weight: Tensor, h: Tensor, norm: Tensor, eps: number, bias: Tensor | null, y: Tensor): void {
    const { heads, groups, dim } = this.shape
    const tiles = ((heads + 2 * groups) * dim) / 16
    this.#split('qkv', tiles, [weight, h, norm, f32(eps), bias, y, this.rows])
  }

  /** h += W x */
  attentionOut(weight: Tensor, x: Tensor, h: Tensor): void {
    this.#split('attention_out', this.shape.hidden / 16, [weight, x, h, this.rows])
  }

  /** y = silu(gate) * up of norm(h), W [2I, S] */
  gateUp(weight: Tensor, h: Tensor, norm: Tensor, eps: number, y: Tensor): void {
    this.#module.launch('gate_up', this.#many(this.shape.inner / 8), [weight, h, norm, f32(eps), y, this.rows])
  }

  /** h += W x, W [S, I] */
  down(weight: Tensor, x: Tensor, h: Tensor): void {
    this.#module.launch('down', { grid: [this.shape.hidden / 16], block: threads, cluster: 2 }, [
      weight,
      x,
      h,
      this.rows,
    ])
  }

  /** scores [R, stride] = W x, W [V, S] */
  head(weight: Tensor, x: Tensor, scores: Tensor): void {
    const launch = this.#many(Math.ceil(weight.size(0) / 16))
    this.#module.launch('head', launch, [weight, x, scores, scores.size(1), weight.size(0), this.rows])
  }

  /** Blocks that take tiles in turns; each loads its first tile before it looks whether there is one. */
  #many(tiles: number): Launch {
    return { grid: [Math.min(this.#blocks, tiles)], block: threads }
  }

  #split(name: string, tiles: number, args: Parameters<KernelModule['launch']>[2]): void {
    this.#module.launch(name, { grid: [(tiles / tilesAGroup(tiles)) * 4], block: threads, cluster: 4 }, args)
  }
}
