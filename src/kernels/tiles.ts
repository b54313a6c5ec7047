// The feed-forward part of 17 to 64 rows, in tiles that the tensor copy engine brings and wgmma multiplies: what compute capability 9.0 has.
// R rows, S hidden, I feed-forward.
import { empty, type Tensor } from '../tensor/index.ts'
import { type DecodeShape, sizesOf } from './decode.ts'
import { KernelModule } from './module.ts'
import { multiprocessors } from './support.ts'
import { kernelTarget } from './target.ts'

const rowsOfTile = 64

/** Features of gate and of up that a block takes: so few that all blocks run at a time, or in two or more rounds. */
export function gatesOfBlock(inner: number, processors: number): number {
  for (let rounds = 1; ; rounds++) {
    const features = Math.ceil(inner / (rounds * processors) / 8) * 8
    if (features <= 112) return features
  }
}

/** Parts of the columns, so that blocks of 64 features and one part fill the GPU; 8 at most. */
export const partsOfDown = (hidden: number, processors: number): number =>
  Math.min(8, Math.max(1, Math.floor(processors / Math.ceil(hidden / 64))))

/** The instruction that multiplies 64 rows with n features names all of its sums. */
function tileProduct(n: number): string {
  const sums = Array.from({ length: n / 2 }, (_, i) => i)
  const names = sums.map((i) => `%${i}`).join(', ')
  const places = sums.map((i) => `"+f"(d[${i}])`).join(', ')
  return `template <> struct Tile<${n}> {
  static DEVICE void product(float* d, u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n${n}k16.f32.bf16.bf16 {${names}}, %${n / 2}, %${n / 2 + 1}, 1, 1, 1, 0, 0;" : ${places} : "l"(a), "l"(b));
  }
};`
}

export class FeedForwardTiles {
  readonly #rows: number
  readonly #gates: number
  readonly #parts: number
  readonly #shape: DecodeShape
  readonly #module: KernelModule

  /** Null where they do not run, or are not faster than the library: up to 16 rows, and above 64. */
  static of(shape: DecodeShape, rows: number, device: string): FeedForwardTiles | null {
    return kernelTarget().tiles && rows > 16 && rows <= rowsOfTile ? new FeedForwardTiles(shape, rows, device) : null
  }

  private constructor(shape: DecodeShape, rows: number, device: string) {
    const processors = multiprocessors(device)
    this.#rows = rows
    this.#shape = shape
    this.#gates = gatesOfBlock(shape.inner, processors)
    this.#parts = partsOfDown(shape.hidden, processors)
    const [gateUp, down] = [this.#stages(2 * this.#gates), this.#stages(64)]
    const sizes = { ...sizesOf(shape), GATES: this.#gates, GATE_STAGES: gateUp, DOWN_STAGES: down }
    const products = [...new Set([this.#gates, 64])].map(tileProduct)
    this.#module = KernelModule.of(['rows', 'tiles'], sizes, ['template <int N> struct Tile;', ...products].join('\n'))
  }

  /** Sums of parts of a product with `down`, [parts, R, S]. */
  sums(device: string): Tensor {
    return empty([this.#parts, this.#rows, this.#shape.hidden], { device, dtype: 'float32' })
  }

  /** y [R, I] = silu(gate) * up of x [R, S], W [2I, S] */
  gateUp(weight: Tensor, x: Tensor, y: Tensor): void {
    const blocks = Math.ceil(this.#shape.inner / this.#gates)
    this.#launch('gate_up_tiles', blocks, 2 * this.#gates, { of: weight, rows: this.#gates }, x, y)
  }

  /** Of W x, x [R, I], W [S, I]. */
  down(weight: Tensor, x: Tensor, sums: Tensor): void {
    const blocks = Math.ceil(this.#shape.hidden / 64) * this.#parts
    this.#launch('down_tiles', blocks, 64, { of: weight, rows: 64 }, x, sums)
  }

  #launch(name: string, blocks: number, features: number, weight: { of: Tensor; rows: number }, x: Tensor, y: Tensor) {
    const shared = this.#stages(features) * stageBytes(features) + 1024
    const launch = { grid: [blocks], block: 160, shared } as const
    this.#module.launch(name, launch, [weight, { of: x, rows: rowsOfTile }, y, this.#rows])
  }

  /** As many as shared memory holds. */
  #stages(features: number): number {
    return Math.min(12, Math.floor((kernelTarget().shared - 2048) / stageBytes(features)))
  }
}

/** 64 columns of the rows and of so many features. */
const stageBytes = (features: number): number => (rowsOfTile + features) * 64 * 2
