// The kernels of a training pass for one shape of decoder: the element-wise work between its matrix products. T tokens, S hidden, I feed-forward.
import { empty, type Tensor } from '../tensor/index.ts'
import { type DecodeShape, sizesOf, unsupportedShape } from './decode.ts'
import { f32, KernelModule } from './module.ts'
import { kernelsOff, noKernels } from './support.ts'

const threads = 256
/** Threads of a block that goes through a whole vocabulary. */
const wideBlock = 1024

/** Of some rows [n, heads, D] each; two are added. */
export type HeadGrads = Record<'query' | 'key' | 'value', readonly [Tensor, Tensor?]>

/** [N, H, D] and its log-sum-exp [H, N] */
type AttendedPair = readonly [Tensor, Tensor]

export class TrainingKernels {
  readonly shape: DecodeShape
  readonly #module: KernelModule
  readonly #block: number

  /** Null if the device or the shape is not covered, or kernels are switched off. */
  static of(shape: DecodeShape, device: string): TrainingKernels | null {
    return kernelsOff() || noKernels(device) || unsupportedShape(shape) ? null : new TrainingKernels(shape)
  }

  private constructor(shape: DecodeShape) {
    this.shape = shape
    this.#block = Math.ceil(shape.hidden / 8 / 32) * 32
    this.#module = KernelModule.of(['training'], sizesOf(shape))
  }

  /** x + the first columns of y, and its norm. */
  sumNorm(x: Tensor, y: Tensor | null, weight: Tensor, eps: number): { sum: Tensor; normed: Tensor } {
    const normed = like(x, [...x.shape])
    const sum = y ? like(x, [...x.shape]) : x
    const args = [x, y, y?.size(1) ?? 0, weight, f32(eps), y ? sum : null, normed]
    this.#module.launch('sum_norm', { grid: [x.size(0)], block: this.#block }, args)
    return { sum, normed }
  }

  /** out [T, S + ..] = the first columns of residual + what comes back through the norm of x. */
  normBack(grad: Tensor, x: Tensor, weight: Tensor, eps: number, residual: Tensor, out: Tensor): void {
    const args = [grad, x, weight, f32(eps), residual, residual.size(1), out, out.size(1)]
    this.#module.launch('norm_back', { grid: [x.size(0)], block: this.#block }, args)
  }

  /** Queries and keys among the columns of [T, ..], in place; tables [T, D]. */
  rotate(qkv: Tensor, cos: Tensor, sin: Tensor): void {
    this.#module.launch('rotate', { grid: [qkv.size(0)], block: threads }, [qkv, qkv.size(1), cos, sin])
  }

  /** Gradients of heads -> the columns they came from: [T, ..]. The first rows have their own gradients, and so have all after them. */
  rotateBack([first, behind]: readonly [HeadGrads, HeadGrads?], out: Tensor, cos: Tensor, sin: Tensor): void {
    const pairs = ({ query, key, value }: HeadGrads) => [query, key, value].flatMap(([one, two]) => [one, two ?? null])
    const split = out.size(0) - (behind?.query[0].size(0) ?? 0)
    const grads = [...pairs(first), split, ...pairs(behind ?? first)]
    this.#module.launch('rotate_back', { grid: [out.size(0)], block: threads }, [...grads, out, out.size(1), cos, sin])
  }

  swiglu(gateUp: Tensor, out: Tensor): void {
    this.#module.launch('gated_rows', { grid: [out.size(0)], block: threads }, [gateUp, gateUp.size(1), out])
  }

  /** Gate and up become their gradient, the gradient of the activation becomes the activation. */
  swigluBack(grad: Tensor, gateUp: Tensor): void {
    const args = [grad, gateUp, gateUp.size(1)]
    this.#module.launch('gated_back', { grid: [grad.size(0)], block: threads }, args)
  }

  /** Of the same queries over two sets of keys: the last rows of `out` and `lse` become those over both, and so does `partLse`. */
  join([out, lse]: AttendedPair, [part, partLse]: AttendedPair): void {
    const { heads, dim } = this.shape
    const block = Math.min(wideBlock, Math.ceil((heads * dim) / 8 / 32) * 32)
    const rows = part.size(0)
    this.#module.launch('join', { grid: [rows], block }, [out, lse, out.size(0), part, partLse, rows])
  }

  /** Scores [M, ..] of which V count, ids [M] int64 -> [3, M] float32: log-probability, entropy, log-sum-exp. */
  scoreRows(scores: Tensor, V: number, ids: Tensor, temperature: number): Tensor {
    const M = scores.size(0)
    const out = empty([3, M], { dtype: 'float32', device: scores.device })
    const [logp, entropy, lse] = [out.select(0, 0), out.select(0, 1), out.select(0, 2)]
    const args = [scores, scores.size(1), V, ids, f32(1 / temperature), logp, entropy, lse]
    this.#module.launch('score_rows', { grid: [M], block: wideBlock }, args)
    return out
  }

  /** Scores become their gradient, given what scoreRows computed from them and the gradients [2, M] of the first two. */
  scoreBack(scores: Tensor, V: number, ids: Tensor, temperature: number, scored: Tensor, grad: Tensor): void {
    const [entropy, lse] = [scored.select(0, 1), scored.select(0, 2)]
    const grads = [grad.select(0, 0), grad.select(0, 1)]
    const args = [scores, scores.size(1), V, ids, f32(1 / temperature), entropy, lse, ...grads]
    this.#module.launch('score_back', { grid: [scores.size(0)], block: wideBlock }, args)
  }
}

function like(x: Tensor, shape: number[]): Tensor {
  return empty(shape, { dtype: x.dtype, device: x.device })
}
