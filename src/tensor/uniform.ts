import type { RandomStream } from '../core/index.ts'
import { buffer, native } from '../engine/index.ts'
import { empty } from './ops.gen.ts'
import { tidy } from './scope.ts'
import type { Tensor } from './tensor.ts'

/** Float32 numbers in [-bound, bound): element i is (2 u - 1) bound of the stream's uniformAt(i), the same on every device. */
export function uniformTensor(random: RandomStream, shape: readonly number[], bound: number, device = 'cpu'): Tensor {
  return tidy(() => {
    const out = empty([...shape], { dtype: 'float32' })
    buffer.set([out.handle, ...random.key, bound])
    native().uniformFill()
    return out.to(device)
  })
}
