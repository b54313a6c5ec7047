// Products of few rows with matrices in 8 or 4 bit, which are read once and never dequantized in memory. R rows, N features, K columns.
import { empty, type Tensor, tidy } from '../tensor/index.ts'
import { KernelModule } from './module.ts'
import { kernelsOff, multiprocessors, noKernels } from './support.ts'
import { kernelTarget } from './target.ts'

export interface QuantizedMatrix {
  numbers: Tensor // int8 [N, K], or uint8 [N, K / 2]: codes of NF4
  scale: Tensor // bfloat16 [N, 1], or [N, K / 64]
  bias: Tensor | null // bfloat16 [N]
}

/** A product of low rank that is added, of matrices whose features are one after the other. */
export interface LowRank {
  inputs: Tensor // bfloat16 [R, parts * r], r a multiple of 16; for a wide matrix [parts * r, K]
  factors: Tensor // bfloat16 [N, r]
  /** Features of each part, up to three of them, multiples of 16 but for the last. */
  parts: readonly number[]
}

/** Rows of a launch; more are taken in turns. Without clusters a block has all columns in its shared memory, of fewer rows. */
const launchRows = (): number => (kernelTarget().clusters ? 32 : 8)
/** Above so many rows making the matrix wide is as fast. */
export const maxQuantizedRows = 64
const [warps, chunk, threads, maxRounds] = [8, 64, 256, 8]
/** Of the blocks that there is room for, those that find it as whole clusters. */
const clustered = 0.9

interface Plan {
  /** Blocks of a cluster, which share the columns. */
  split: number
  /** Of a multiprocessor. */
  blocks: number
  shared: number
}

function planOf(columns: number, tiles: number): Plan | null {
  const sums = tiles * 32 * 16 * (2 * warps + 2)
  const of = (split: number) => {
    const rounds = Math.ceil(Math.ceil(columns / chunk / split) / warps)
    return { rounds, shared: tiles * 8 * (rounds * warps * chunk + 8) * 2 + sums }
  }
  const target = kernelTarget()
  // two blocks of a multiprocessor, each with 1 KiB that is reserved; of 32 rows one, which needs fewer blocks to a cluster
  const rooms = [[2, (target.shared - 1024) / 2] as const, [1, target.shared] as const].slice(tiles > 2 ? 1 : 0)
  for (const [blocks, room] of rooms)
    for (let split = 1; split <= (target.clusters ? 8 : 1); split++) {
      const { rounds, shared } = of(split)
      if (rounds <= maxRounds && shared <= room) return { split, blocks, shared }
    }
  return null
}

const tilesOf = (rows: number) => (rows > 16 ? 4 : rows > 8 ? 2 : 1)

const bitsOf = ({ dtype }: Tensor) => (dtype === 'uint8' ? 4 : 8)

/** Whether matrices of so many columns are covered, whatever the rows. */
export const coversColumns = (columns: number, bits: number): boolean =>
  columns % (bits === 4 ? chunk : 16) === 0 && planOf(columns, tilesOf(launchRows())) !== null

/** x [R, K] -> y [R, N] */
export function quantizedProduct(x: Tensor, matrix: QuantizedMatrix, y: Tensor, low: LowRank | null = null): void {
  const most = launchRows()
  for (let from = 0; from < x.size(0); from += most) {
    const rows = Math.min(most, x.size(0) - from)
    const of = (t: Tensor) => t.narrow(0, from, rows)
    launch(of(x), matrix, of(y), low && { ...low, inputs: of(low.inputs) })
  }
}

function launch(x: Tensor, { numbers, scale, bias }: QuantizedMatrix, y: Tensor, low: LowRank | null): void {
  const [rows, columns] = x.shape as [number, number]
  const tiles = tilesOf(rows)
  const { split, blocks, shared } = planOf(columns, tiles)!
  const extra = low?.factors.size(1) ?? 0
  const sizes = { COLUMNS: columns, TILES: tiles, SPLIT: split, BLOCKS: blocks, EXTRA: extra, BITS: bitsOf(numbers) }
  const features = numbers.size(0)
  const [second, third] = low ? startsOf(low.parts, features) : [features, features]
  const grid = [split * groupsOf(features, split, blocks, x.device)] as const
  const lowRank = [low?.factors ?? null, low?.inputs ?? null, low?.inputs.size(1) ?? 0, second, third]
  const args = [numbers, scale, x, bias, y, features, rows, ...lowRank]
  KernelModule.of(['quantized'], sizes).launch(
    'product_quantized',
    { grid, block: threads, shared, cluster: split },
    args,
  )
}

/** Where the second and the third part begin; after the end if there is none. */
function startsOf(parts: readonly number[], features: number): [number, number] {
  const second = parts[0] ?? features
  return [second, second + (parts[1] ?? features)]
}

/** Clusters that run at a time, no more than give each the same number of tiles of 16 features. */
function groupsOf(features: number, split: number, blocks: number, device: string): number {
  const tiles = Math.ceil(features / 16)
  const room = blocks * multiprocessors(device) * (split > 1 ? clustered : 1)
  return Math.ceil(tiles / Math.ceil(tiles / Math.floor(room / split)))
}

/** The matrix [N, K] in the dtype of its scale, with a product of low rank added before the only rounding; in `place` if given. */
export function widen(matrix: Omit<QuantizedMatrix, 'bias'>, low: LowRank | null = null, place?: Tensor): Tensor {
  const { numbers, scale } = matrix
  const bits = bitsOf(numbers)
  const [features, columns, rank] = [numbers.size(0), (numbers.size(1) * 8) / bits, low?.factors.size(1) ?? 0]
  const wide = place ?? empty([features, columns], { device: numbers.device, dtype: scale.dtype })
  const parts = low?.parts ?? [features]
  const strip = 128 * (rank | 16) // bytes of 64 columns of the low rank
  const strips = Math.min(4, Math.max(1, Math.floor((kernelTarget().shared / 2 - 1024) / strip)))
  const across = Math.ceil(columns / chunk / strips)
  const room = (rank ? 4 : 8) * multiprocessors(wide.device) // blocks at a time
  const down = Math.min(Math.ceil(features / 128), Math.max(1, Math.floor(room / across / parts.length)))
  const launch = { grid: [across, down * parts.length] as const, block: threads, shared: strips * strip }
  const added = [low?.factors ?? null, low?.inputs ?? null, parts.length, ...startsOf(parts, features)]
  const kernels = KernelModule.of(['widen'], { COLUMNS: columns, BITS: bits, EXTRA: rank, STRIPS: strips })
  kernels.launch('widen', launch, [numbers, scale, wide, features, ...added])
  return wide
}

/** The same where the kernels run; null elsewhere. */
export function widenOn(
  matrix: Omit<QuantizedMatrix, 'bias'>,
  low: Omit<LowRank, 'parts'> | null = null,
  place?: Tensor,
): Tensor | null {
  const { numbers, scale } = matrix
  const [features, bytes] = numbers.shape as [number, number]
  if (scale.dtype !== 'bfloat16' || bytes % 16 !== 0 || (low && low.factors.size(1) % 16 !== 0)) return null
  if (place && place.size(1) * bitsOf(numbers) !== bytes * 8) return null // its last block of 64 columns is short
  return kernelsOff() || noKernels(numbers.device) ? null : widen(matrix, low && { ...low, parts: [features] }, place)
}

/** Products [.., K] -> [.., N] of few rows in bfloat16, if the kernels run on this device; null if the matrix must be dequantized. */
export function quantizedProductOn(device: string): ((x: Tensor, matrix: QuantizedMatrix) => Tensor | null) | null {
  if (kernelsOff() || noKernels(device)) return null
  return (x, matrix) => {
    const [features, columns] = [matrix.numbers.size(0), x.size(-1)]
    const rows = x.numel / columns
    if (x.dtype !== 'bfloat16' || rows > maxQuantizedRows || !coversColumns(columns, bitsOf(matrix.numbers)))
      return null
    return tidy(() => {
      const y = empty([...x.shape.slice(0, -1), features], { dtype: x.dtype, device: x.device })
      quantizedProduct(x.contiguous().view([rows, columns]), matrix, y.view([rows, features]))
      return y
    })
  }
}
