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

/** Gradients of attention's parts for rows from `from` on; several entries for the same rows are added. */
export interface PlacedGrads {
  readonly queries: readonly [from: number, count: number]
  readonly keys: readonly [from: number, count: number]
  readonly grads: AttentionGrads
}

export interface Elementwise {
  /** x + the first columns of y, and its norm. Without y: x itself. */
  addNorm(x: Tensor, y: Tensor | null, norm: Norm): { sum: Tensor; normed: Tensor }
  norm(x: Tensor, norm: Norm): Tensor
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
  /** Attention of the same queries over two sets of keys, as if it had been one set; in `out` after the rows of `first`, if any. */
  join(a: Attended, b: Attended, first?: Tensor): { out: Tensor; logSumExp: Tensor }
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

  norm: (x, norm) => rmsNorm(x, norm.weight, norm.eps),

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
    const seen = { queries: new Set<number>(), keys: new Set<number>() }
    const put = (into: Tensor, [from, count]: readonly [number, number], x: Tensor, again: boolean) => {
      const place = into.narrow(0, from, count)
      if (again) place.add_(x)
      else place.copy_(x)
    }
    for (const { queries: asking, keys: seenKeys, grads } of placed) {
      put(q, asking, grads.query, seen.queries.has(asking[0]))
      put(k, seenKeys, grads.key, seen.keys.has(seenKeys[0]))
      put(v, seenKeys, grads.value, seen.keys.has(seenKeys[0]))
      seen.queries.add(asking[0])
      seen.keys.add(seenKeys[0])
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

  join(a, b, first) {
    const logSumExp = a.logSumExp.logaddexp(b.logSumExp) // [H, N]
    const share = b.logSumExp.sub(logSumExp).exp_().t().unsqueeze(-1).to(a.out.dtype) // [N, H, 1]
    const out = a.out.lerp(b.out, share)
    return { out: first ? cat([first, out]) : out, logSumExp }
  },
}
