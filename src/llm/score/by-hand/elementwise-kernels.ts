// `Elementwise` by the custom kernels: each a single launch that reads and writes every element once.
import type { HeadGrads, TrainingKernels } from '../../../kernels/index.ts'
import { empty, type Tensor } from '../../../tensor/index.ts'
import type { Elementwise, PlacedGrads } from './elementwise.ts'

const like = (x: Tensor, shape: number[]) => empty(shape, { dtype: x.dtype, device: x.device })

/** Of prompts, which others see too, and of the rows after them, which see prompts too. */
function gradsOf([whole, part]: readonly PlacedGrads[]): [HeadGrads, HeadGrads?] {
  const { query, key, value } = whole!.grads
  if (!part) return [{ query: [query], key: [key], value: [value] }]
  const last = (t: Tensor) => t.narrow(0, ...part.queries)
  return [
    { query: [query], key: [key, part.grads.key], value: [value, part.grads.value] },
    { query: [last(query), part.grads.query], key: [last(key)], value: [last(value)] },
  ]
}

export function kernelElementwise(kernels: TrainingKernels): Elementwise {
  return {
    addNorm: (x, y, norm) => kernels.sumNorm(x, y, norm.weight, norm.eps),

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
      kernels.rotateBack(gradsOf(placed), out, cos, sin)
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

    join: (whole, part) => kernels.join([whole.out, whole.logSumExp], [part.out, part.logSumExp]),
  }
}
