import type { Tensor } from '../tensor/index.ts'

/**
 * Per-token estimate of KL(policy || reference) from u = log(reference / policy) at the sampled token: k3 = e^u - u - 1, which is never
 * negative.
 */
export function klOf(u: Tensor): Tensor {
  return u.expm1().sub(u) // expm1: near u = 0 the difference e^u - 1 would lose its digits
}
