import type { Tensor } from '../tensor/index.ts'

export type KlEstimator = 'k1' | 'k2' | 'k3'

/**
 * Per-token estimate of KL(policy || reference) from u = log(reference / policy) at the sampled token. k1 = -u has no
 * expected gradient; k3 = e^u - u - 1 is never negative and is what the loss uses.
 */
export function klOf(u: Tensor, estimator: KlEstimator = 'k3'): Tensor {
  if (estimator === 'k1') return u.neg()
  if (estimator === 'k2') return u.square().div(2)
  return u.expm1().sub(u) // expm1: near u = 0 the difference e^u - 1 would lose its digits
}

/** k3 with u and the value held in range, as verl has it. */
export function klClamped(u: Tensor, maxLogRatio = 20, maxValue = 10): Tensor {
  return klOf(u.clamp({ min: -maxLogRatio, max: maxLogRatio })).clamp({ min: -maxValue, max: maxValue })
}
