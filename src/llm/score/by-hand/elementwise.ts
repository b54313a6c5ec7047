// Element-wise parts of a layer (norms, rotary, SwiGLU) and their derivatives. T tokens, S hidden, I intermediate, D head size.
import type { RopeTable } from '../../../nn/index.ts'
import {
  type Attended,
  type AttentionGrads,
  cat,
  empty,
  rmsNorm,
  rmsNormBackward,
  siluBackwardInto,
  type Tensor,
} from '../../../tensor/index.ts'

/** Columns of a matrix that are heads of queries, keys or values, one after the other. */
export interface HeadLayout {
  readonly queries: number
  readonly keys: number
  readonly dim: number
}

export interface Norm {
  readonly weight: Tensor // [S]
  readonly eps: number
}

/** Gradients of attention's parts for some rows: those of the first entry are of all rows, others are added. */
export interface PlacedGrads {
  readonly queries: readonly [from: number, count: number]
  readonly keys: readonly [from: number, count: number]
  readonly grads: AttentionGrads
}

export interface Elementwise {
  /** x + the first columns of y, and its norm. Without y: x itself. */
  addNorm(x: Tensor, y: Tensor | null, norm: Norm): { sum: Tensor; normed: Tensor }
  /** What comes back through the norm of x, added to the first columns of `residual`: [T, S + extra], the extra columns not yet written. */
  normBackward(grad: Tensor, x: Tensor, norm: Norm, residual: Tensor, extra: number): Tensor
  /** Queries and keys among the columns, rotated in place. */
  rotate(qkv: Tensor, heads: HeadLayout, table: RopeTable): void
  /** Gradients of rotated heads -> those of the columns before: [T, columns + extra], the extra ones not yet written. */
  rotateBackward(
    tokens: number,
    placed: readonly PlacedGrads[],
    heads: HeadLayout,
    table: RopeTable,
    extra: number,
  ): Tensor
  /** [T, 2I + ..] gate and up -> silu(gate) up [T, I] */
  swiglu(gateUp: Tensor, I: number): Tensor
  /**
   * Gradient [T, I] -> the activation again, in its place or a new one; gate and up become their gradient, what follows them stays.
   */
  swigluBackward(grad: Tensor, gateUp: Tensor, I: number): Tensor
  /**
   * Attention of the same queries over two sets of keys becomes that over one: in the last rows of `whole`, which `part` is about. The
   * log-sum-exp is in both then.
   */
  join(whole: Attended, part: Attended): void
}

const like = (x: Tensor) => ({ dtype: x.dtype, device: x.device })

/** [T, n, D] of the columns from `from` on. */
function headColumns(x: Tensor, from: number, n: number, dim: number): Tensor {
  return x.narrow(1, from, n * dim).view([x.size(0), n, dim])
}

/** -1: back. */
function rotated(x: Tensor, { cos, sin }: RopeTable, sign: 1 | -1): Tensor {
  const [a, b] = x.chunk(2, { dim: -1 }) as [Tensor, Tensor]
  const turned = sign === 1 ? cat([b.neg(), a], { dim: -1 }) : cat([b, a.neg()], { dim: -1 })
  return x.mul(cos).addcmul_(turned, sin)
}

/** Op by op, on every device. */
export const atenElementwise: Elementwise = {
  addNorm(x, y, norm) {
    const sum = y ? x.add(y.narrow(1, 0, x.size(1))) : x
    return { sum, normed: rmsNorm(sum, norm.weight, norm.eps) }
  },

  normBackward(grad, x, norm, residual, extra) {
    const [T, S] = x.shape as [number, number]
    const out = empty([T, S + extra], like(x))
    const own = rmsNormBackward(grad, x, norm.weight, norm.eps)
    out.narrow(1, 0, S).copy_(own.add_(residual.narrow(1, 0, S)))
    return out
  },

  rotate(qkv, { queries, keys, dim }, table) {
    const both = headColumns(qkv, 0, queries + keys, dim)
    both.copy_(rotated(both, table, 1))
  },

  rotateBackward(tokens, placed, { queries, keys, dim }, table, extra) {
    const { query } = placed[0]!.grads
    const out = empty([tokens, (queries + 2 * keys) * dim + extra], like(query))
    const q = headColumns(out, 0, queries, dim)
    const k = headColumns(out, queries * dim, keys, dim)
    const v = headColumns(out, (queries + keys) * dim, keys, dim)
    const put = (into: Tensor, [from, count]: readonly [number, number], x: Tensor, again: boolean) => {
      if (again) into.narrow(0, from, count).add_(x)
      else into.copy_(x)
    }
    for (const [i, { queries: asking, keys: seen, grads }] of placed.entries()) {
      put(q, asking, grads.query, i > 0)
      put(k, seen, grads.key, i > 0)
      put(v, seen, grads.value, i > 0)
    }
    const both = headColumns(out, 0, queries + keys, dim)
    both.copy_(rotated(both, table, -1))
    return out
  },

  swiglu(gateUp, I) {
    const gate = gateUp.narrow(1, 0, I).silu()
    return gate.mul_(gateUp.narrow(1, I, I))
  },

  swigluBackward(grad, gateUp, I) {
    const [gate, up] = [gateUp.narrow(1, 0, I), gateUp.narrow(1, I, I)]
    const opened = gate.silu()
    const ofUp = opened.mul(grad)
    siluBackwardInto(gate, grad.mul(up), gate)
    const activation = opened.mul_(up)
    up.copy_(ofUp)
    return activation
  },

  join(whole, part) {
    const N = part.out.size(0)
    const [out, lse] = [whole.out.narrow(0, -N, N), whole.logSumExp.narrow(1, -N, N)] // [N, H, D], [H, N]
    const both = lse.logaddexp(part.logSumExp)
    const share = part.logSumExp.sub(both).exp_().t().unsqueeze(-1).to(out.dtype) // [N, H, 1]
    out.copy_(out.lerp(part.out, share))
    for (const t of [lse, part.logSumExp]) t.copy_(both)
  },
}
