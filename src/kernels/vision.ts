import type { Tensor } from '../tensor/index.ts'
import { KernelModule } from './module.ts'
import { kernelsOff, noKernels } from './support.ts'

/** What rotates queries and keys of `like`'s patches [P, 3, H, D] in place, by float32 tables [P, 1, D]; null if it is not covered. */
export function patchRotator(heads: number, dim: number, like: Tensor) {
  if (like.dtype !== 'bfloat16' || dim % 8 !== 0 || kernelsOff() || noKernels(like.device)) return null
  const module = KernelModule.of(['vision'], { HEADS: heads, GROUPS: heads, DIM: dim })
  return (qkv: Tensor, { cos, sin }: { cos: Tensor; sin: Tensor }): void =>
    module.launch('rotate_patches', { grid: [qkv.size(0)], block: 256 }, [qkv, cos, sin])
}
