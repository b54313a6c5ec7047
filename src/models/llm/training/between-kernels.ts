// The same as `opByOp` by kernels of ours: each a single launch that reads and writes every element once.
import type { TrainingKernels } from '../../../kernels/index.ts'
import { empty, type Tensor } from '../../../tensor/index.ts'
import type { Between, PlacedGrads } from './between.ts'

const like = (x: Tensor, shape: number[]) => empty(shape, { dtype: x.dtype, device: x.device })

/** The gradients of some rows: those that begin at `from`, as queries or as keys. */
function partsAt(placed: readonly PlacedGrads[], from: number) {
  const asking = placed.filter((p) => p.queries[0] === from)
  const seen = placed.filter((p) => p.keys[0] === from)
  const pair = (of: readonly Tensor[]) => of as unknown as readonly [Tensor, Tensor?]
  return {
    count: asking[0]!.queries[1],
    query: pair(asking.map((p) => p.grads.query)),
    key: pair(seen.map((p) => p.grads.key)),
    value: pair(seen.map((p) => p.grads.value)),
  }
}

export function byKernels(kernels: TrainingKernels): Between {
  return {
    addNorm: (x, y, norm) => kernels.sumNorm(x, y, norm.weight, norm.eps),

    norm: (x, norm) => kernels.sumNorm(x, null, norm.weight, norm.eps).normed,

    normBackward(grad, x, norm, residual, extra) {
      const out = like(x, [x.size(0), x.size(1) + extra])
      kernels.normBack(grad, x, norm.weight, norm.eps, residual, out)
      return out
    },

    rotate(qkv, _, { cos, sin }) {
      kernels.rotate(qkv, cos, sin)
    },

    rotateBackward(tokens, placed, { queries, keys, dim }, { cos, sin }, extra) {
      const out = like(placed[0]!.grads.query, [tokens, (queries + 2 * keys) * dim + extra])
      for (const from of new Set(placed.map((p) => p.queries[0]))) {
        const parts = partsAt(placed, from)
        const rows = (t: Tensor) => t.narrow(0, from, parts.count)
        kernels.rotateBack(parts, rows(out), rows(cos), rows(sin))
      }
      return out
    },

    swiglu(gateUp, I) {
      const out = like(gateUp, [gateUp.size(0), I])
      kernels.swiglu(gateUp, out)
      return out
    },

    swigluBackward(grad, gateUp) {
      const out = like(gateUp, [...gateUp.shape])
      const activation = like(grad, [...grad.shape])
      kernels.swigluBack(grad, gateUp, out, activation)
      return { activation, grad: out }
    },

    join(a, b) {
      const joined = { out: like(a.out, [...a.out.shape]), logSumExp: like(a.logSumExp, [...a.logSumExp.shape]) }
      kernels.join([a.out, a.logSumExp], [b.out, b.logSumExp], joined.out, joined.logSumExp)
      return joined
    },
  }
}
