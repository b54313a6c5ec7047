import type { Tensor } from '../../tensor/index.ts'

/** At least float32: 16-bit values widen, float64 stays. */
export function wide(t: Tensor): Tensor {
  return t.dtype === 'bfloat16' || t.dtype === 'float16' ? t.to('float32') : t
}

/** Wide on the CPU, where libtorch has no 16-bit kernel for some ops (transposed convolution). */
export function wideOnCpu(t: Tensor): Tensor {
  return t.device.startsWith('cpu') ? wide(t) : t
}
