import { empty, gradEnabled, type Tensor, tidy } from '../tensor/index.ts'
import { f32, KernelModule } from './module.ts'
import { kernelsOff, noKernels } from './support.ts'

const threads = 256

/** What rotates queries and keys of `like`'s patches [P, 3, H, D] in place, by float32 tables [P, 1, D]; null if it is not covered. */
export function patchRotator(heads: number, dim: number, like: Tensor) {
  if (like.dtype !== 'bfloat16' || dim % 8 !== 0 || kernelsOff() || noKernels(like.device)) return null
  const module = KernelModule.of(['vision'], { HEADS: heads, GROUPS: heads, DIM: dim })
  return (qkv: Tensor, { cos, sin }: { cos: Tensor; sin: Tensor }): void =>
    module.launch('rotate_patches', { grid: [qkv.size(0)], block: threads }, [qkv, cos, sin])
}

/** x + y * scale, not added yet: a shortcut and the output of its branch. */
export interface Residual {
  readonly x: Tensor
  readonly y?: Tensor
  readonly scale?: Tensor // [C]
}

export const sumOf = ({ x, y, scale }: Residual): Tensor => (y ? x.add(scale ? y.mul(scale) : y) : x)

/** The residual after a layer; the one before it is freed. */
export function afterLayer(at: Residual, layer: { forward(at: Residual): Residual }): Residual {
  const next = layer.forward(at)
  for (const t of [at.x, at.y]) t?.dispose()
  return next
}

/** A layer norm; others have no bias. */
type Norm = { weight: Tensor; bias?: Tensor; readonly eps: number; forward(x: Tensor): Tensor }

/** Cells a side of the windows in which y is, and of those in which the norm shall be, for maps x [B, H, W, C]. */
type Windows = { from?: number; to?: number }

/** The sum and its norm: by one kernel, else by ATen's ops. */
export function normedSum(at: Residual, norm: Norm, windows: Windows = {}): { sum: Tensor; normed: Tensor } {
  const fused = fusedNormedSum(at, norm, windows)
  if (fused) return fused
  return tidy(() => {
    const [{ x, y }, { from, to }] = [at, windows]
    const sum = sumOf({ ...at, y: y && from ? merge(y, from, x.size(1), x.size(2)) : y })
    const normed = norm.forward(sum)
    return { sum, normed: to ? partition(normed, to) : normed }
  })
}

/** Null if it is not covered. */
export function fusedNormedSum({ x, y, scale }: Residual, { weight, bias, eps }: Norm, { from = 0, to = 0 }: Windows) {
  const width = weight.numel
  const inputs = [x, y, scale, weight, bias].filter((t) => t !== undefined)
  const fits = (side: number) => side === 0 || (x.size(1) % side === 0 && x.size(2) % side === 0)
  if (!bias || width % 8 !== 0 || width > 4096 || !fits(from) || !fits(to)) return null
  if (inputs.some((t) => t.dtype !== 'bfloat16' || (t.requiresGrad && gradEnabled()))) return null
  if (kernelsOff() || noKernels(x.device)) return null
  const [rows, lanes, like] = [x.numel / width, width <= 320 ? 8 : 32, { dtype: x.dtype, device: x.device }]
  const sum = y ? empty([...x.shape], like) : x
  const normed = empty(to > 0 ? [rows / to ** 2, to, to, width] : [...x.shape], like)
  const tensors = [x.contiguous(), y?.contiguous() ?? null, scale ?? null, weight, bias]
  const args = [...tensors, f32(eps), y ? sum : null, normed, rows, x.size(-2), from, to]
  const launch = { grid: [Math.ceil((rows * lanes) / threads)] as const, block: threads }
  KernelModule.of(['vision'], { WIDTH: width, LANES: lanes }).launch('normed_sum', launch, args)
  return { sum, normed }
}

function padded(n: number, window: number): number {
  return Math.ceil(n / window) * window
}

/** A map [B, H, W, C] to windows [N, w, w, C]; zeros fill the right and bottom where the window does not divide the map. */
export function partition(x: Tensor, w: number): Tensor {
  const [b, rows, columns, c] = x.shape as [number, number, number, number]
  const [h, wide] = [padded(rows, w), padded(columns, w)]
  const full = h === rows && wide === columns ? x : x.constantPadNd([0, 0, 0, wide - columns, 0, h - rows])
  const cells = full.view([b, h / w, w, wide / w, w, c])
  return cells.permute([0, 1, 3, 2, 4, 5]).reshape([-1, w, w, c])
}

/** The inverse, to a map of rows x columns. */
function merge(windows: Tensor, w: number, rows: number, columns: number): Tensor {
  const [h, wide] = [padded(rows, w), padded(columns, w)]
  const c = windows.size(3)
  const cells = windows.view([-1, h / w, wide / w, w, w, c])
  const full = cells.permute([0, 1, 3, 2, 4, 5]).reshape([-1, h, wide, c])
  return h === rows && wide === columns ? full : full.narrow(1, 0, rows).narrow(2, 0, columns)
}
