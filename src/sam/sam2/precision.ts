import type { Tensor } from '../../tensor/index.ts'
import type { Sam2Config } from './config.ts'

/** At least float32: 16-bit values widen, float64 stays. */
export function wide(t: Tensor): Tensor {
  return t.dtype === 'bfloat16' || t.dtype === 'float16' ? t.to('float32') : t
}

/** Wide on the CPU, where libtorch has no 16-bit kernel for some ops (transposed convolution). */
export function wideOnCpu(t: Tensor): Tensor {
  return t.device.startsWith('cpu') ? wide(t) : t
}

/** Where activations change their dtype on the way through the network; the identity unless the reference is followed. */
export interface Autocast {
  /** Before a product: linear, convolution, attention. */
  narrow(t: Tensor): Tensor
  /** Before a layer norm, whose result stays wide. */
  widen(t: Tensor): Tensor
  readonly isReference: boolean
}

const same: Autocast = { narrow: (t) => t, widen: (t) => t, isReference: false }

/** CUDA autocast to bfloat16: products in bfloat16, norms and what is added to them in float32. */
const reference: Autocast = {
  narrow: (t) => (t.dtype === 'bfloat16' ? t : t.to('bfloat16')),
  widen: wide,
  isReference: true,
}

export function autocastOf(cfg: Pick<Sam2Config, 'rounding'>): Autocast {
  return cfg.rounding === 'bf16-ref' ? reference : same
}
