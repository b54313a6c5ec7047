// Weights for completions that another engine, dtype or distribution sampled.
import { wide } from '../nn/index.ts'
import { type Tensor, tidyNoGrad } from '../tensor/index.ts'
import type { rolloutModes } from './config.ts'

export interface RolloutOptions {
  mode: (typeof rolloutModes)[number]
  min: number | null
  max: number | null
}

export interface RolloutWeights {
  /** [B, T] for token modes, [B, 1] for sequence modes (the product over the row); 1 at masked positions. */
  isRatio: Tensor
  metrics: Record<string, number>
}

/** exp(old - sampling): truncate holds the weights in [min, max], mask turns weights outside it into 0. */
export function rolloutWeights(
  oldLogps: Tensor,
  samplingLogps: Tensor,
  mask: Tensor,
  options: RolloutOptions,
): RolloutWeights {
  return tidyNoGrad(() => {
    const difference = maskedDifference(oldLogps, samplingLogps, mask)
    const whole = options.mode.startsWith('sequence')
    const raw = (whole ? difference.sum(-1, { keepdim: true }) : difference).exp()
    const { min, max } = options
    const clamped = () => (min === null && max === null ? raw : raw.clamp({ min, max }))
    const isRatio = options.mode.endsWith('truncate') ? clamped() : maskedOut(raw, options)
    return { isRatio, metrics: { ...differenceMetrics(difference, mask), ...ratioMetrics(isRatio) } }
  })
}

/** How far the sampler's log-probs are from the scoring pass: the alarm for cache, position and padding faults. */
export function logpDifference(oldLogps: Tensor, samplingLogps: Tensor, mask: Tensor): Record<string, number> {
  return tidyNoGrad(() => differenceMetrics(maskedDifference(oldLogps, samplingLogps, mask), mask))
}

function maskedDifference(oldLogps: Tensor, samplingLogps: Tensor, mask: Tensor): Tensor {
  return wide(oldLogps).sub(wide(samplingLogps)).maskedFill(mask.eq(0), 0) // [B, T]
}

function maskedOut(raw: Tensor, { min, max }: RolloutOptions): Tensor {
  let out = raw
  if (max !== null) out = out.maskedFill(raw.gt(max), 0)
  if (min !== null) out = out.maskedFill(raw.lt(min), 0)
  return out
}

function differenceMetrics(difference: Tensor, mask: Tensor): Record<string, number> {
  const there = difference.abs().maskedSelect(mask.ne(0))
  const empty = there.numel === 0
  return {
    'sampling/sampling_logp_difference/mean': empty ? 0 : there.mean().item(),
    'sampling/sampling_logp_difference/max': empty ? 0 : there.max().item(),
    'sampling/sampling_logp_difference/far_rows': empty ? 0 : farRows(difference, mask),
  }
}

/** Share of the rows with a token whose log-prob is off by more than this. */
const far = 0.05

function farRows(difference: Tensor, mask: Tensor): number {
  const rows = mask.ne(0).sum(-1).gt(0)
  const off = difference.abs().gt(far).sum(-1).gt(0)
  return off.to('float32').sum().item() / rows.to('float32').sum().item()
}

function ratioMetrics(ratio: Tensor): Record<string, number> {
  return {
    'sampling/importance_sampling_ratio/min': ratio.min().item(),
    'sampling/importance_sampling_ratio/mean': ratio.mean().item(),
    'sampling/importance_sampling_ratio/max': ratio.max().item(),
  }
}
