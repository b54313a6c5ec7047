// `Elementwise` by the custom kernels: each a single launch that reads and writes every element once.
import type { HeadGrads, TrainingKernels } from '../../../kernels/index.ts'
import { empty, type Tensor } from '../../../tensor/index.ts'
import type { Elementwise, PlacedGrads } from './elementwise.ts'

const like = (x: Tensor, shape: number[]) => empty(shape, { dtype: x.dtype, device: x.device })

/** The gradients of some rows: those that begin at `from`, as queries or as keys. */
function gradsAt(placed: readonly PlacedGrads[], from: number): HeadGrads {
  const asking = placed.filter((p) => p.queries[0] === from)
  const seen = placed.filter((p) => p.keys[0] === from)
  const pair = (of: readonly Tensor[]) => of as unknown as readonly [Tensor, Tensor?]
  return {
    query: pair(asking.map((p) => p.grads.query)),
    key: pair(seen.map((p) => p.grads.key)),
    value: pair(seen.map((p) => p.grads.value)),
  }
}

export function kernelElementwise(kernels: TrainingKernels): Elementwise {
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
      const starts = [...new Set(placed.map((p) => p.queries[0]))].sort((a, b) => a - b)
      const [first, behind] = starts.map((from) => gradsAt(placed, from)) as [HeadGrads, HeadGrads?]
      kernels.rotateBack([first, behind], out, cos, sin)
      return out
    },

    swiglu(gateUp, I) {
      const out = like(gateUp, [gateUp.size(0), I])
      kernels.swiglu(gateUp, out)
      return out
    },

    swigluBackward(grad, gateUp) {
      kernels.swigluBack(grad, gateUp)
      return grad
    },

    join(a, b, first) {
      const [N, H, D] = a.out.shape as [number, number, number]
      const out = like(a.out, [(first?.size(0) ?? 0) + N, H, D])
      const logSumExp = like(a.logSumExp, [...a.logSumExp.shape])
      kernels.join([a.out, a.logSumExp], [b.out, b.logSumExp], first ?? null, out, logSumExp)
      return { out, logSumExp }
    },
  }
}
