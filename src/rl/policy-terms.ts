// What a sampled token is worth to the loss: the clipped surrogate and its relatives.
import { full, noGrad, type Tensor, where } from '../tensor/index.ts'
import type { LossConfig } from './grpo.ts'
import type { LossStats, Masked } from './loss-stats.ts'

/** Inputs in one dtype, with zeros at masked positions. */
export interface LossBatch extends Masked {
  logps: Tensor
  /** logps - oldLogps, within the guard. */
  change: Tensor
  real: Tensor
  /** Unmasked columns that are tokens. */
  words: Tensor
  ratio: Tensor // [B, T] or [B, 1]
  klRatio: Tensor | null // log of reference over policy
  entropies: Tensor | null
  isRatio: Tensor | null
}

export function clampTo(t: Tensor, limit: number): Tensor {
  return t.clamp({ min: -limit, max: limit })
}

export function rowMean(t: Tensor, batch: Pick<LossBatch, 'mask' | 'divisor'>): Tensor {
  return t.mul(batch.mask).sum(-1, { keepdim: true }).div(batch.divisor) // [B, 1]
}

/** The term of the chosen loss type: [B, T], or [B, 1] for row losses. */
export function policyTerm(
  batch: LossBatch,
  config: LossConfig,
  stats: LossStats,
): { value: Tensor; phi: Tensor | null } {
  switch (config.lossType) {
    case 'sapo':
      return { value: softGate(batch, config), phi: null }
    case 'cispo':
      return { value: cappedWeight(batch, config, stats), phi: null }
    case 'vespo': {
      const phi = vespoWeight(batch, config)
      stats.add([phi], () => ({ 'vespo/phi_seq_mean': phi.mean() }))
      return { value: phi.mul(batch.advantages).mul(batch.logps).neg(), phi }
    }
    case 'gmpo':
      return { value: geometricMean(batch, config, stats), phi: null }
    default:
      return { value: clippedSurrogate(batch, config, stats), phi: null }
  }
}

/** -min(ratio A, clamp(ratio) A), the ratio capped at delta first. */
function clippedSurrogate(batch: LossBatch, config: LossConfig, stats: LossStats): Tensor {
  const { advantages, ratio } = batch
  const [low, high] = [1 - config.epsilon, 1 + (config.epsilonHigh ?? config.epsilon)]
  const capped = config.delta === null ? ratio : ratio.clampMax(config.delta)
  stats.clips(capped, low, high, batch)
  return capped
    .mul(advantages)
    .minimum(ratio.clamp({ min: low, max: high }).mul(advantages))
    .neg()
}

/** One of two numbers, in the dtype of another tensor. */
function choose(condition: Tensor, yes: number, no: number, like: Tensor): Tensor {
  const as = { dtype: like.dtype, device: like.device }
  return where(condition, full([], yes, as), full([], no, as))
}

/** SAPO: a sigmoid around ratio 1 in place of the clip. */
function softGate(batch: LossBatch, config: LossConfig): Tensor {
  const slope = choose(batch.advantages.gt(0), config.sapoTemperaturePos, config.sapoTemperatureNeg, batch.mask)
  const gate = batch.ratio.sub(1).mul(slope).sigmoid().mul(slope.reciprocal().mul(4))
  return gate.mul(batch.advantages).neg()
}

/** CISPO: the capped ratio is a weight without gradient. */
function cappedWeight(batch: LossBatch, config: LossConfig, stats: LossStats): Tensor {
  const cap = config.epsilonHigh ?? config.epsilon
  const ratio = batch.ratio.detach()
  stats.tokenMean('cispo_clip_ratio', ratio.gt(cap).logicalAnd(batch.advantages.gt(0)), batch)
  return ratio.clampMax(cap).mul(batch.advantages).mul(batch.logps).neg()
}

const logTiny = Math.log(1e-8)

/** VESPO: exp(lambda + k log w - lambda w) of the row's weight w, without gradient; 1 at w = 1. [B, 1] */
function vespoWeight(batch: LossBatch, config: LossConfig): Tensor {
  return noGrad(() => {
    let sum = clampTo(batch.change.detach(), 20).mul(batch.mask).sum(-1, { keepdim: true })
    if (batch.isRatio) sum = sum.add(batch.isRatio.log().clamp({ min: logTiny, max: 20 }).sum(-1, { keepdim: true }))
    const log = sum.clamp({ min: logTiny, max: 20 })
    const positive = batch.advantages.ge(0)
    const k = choose(positive, config.vespoKPos, config.vespoKNeg, log)
    const lambda = choose(positive, config.vespoLambdaPos, config.vespoLambdaNeg, log)
    const phi = lambda.add(k.mul(log)).sub(lambda.mul(log.exp())).exp()
    return phi.nanToNum({ nan: 0, posinf: 0, neginf: 0 })
  })
}

/** GMPO: the geometric mean of ratios clipped in log space. [B, 1] */
function geometricMean(batch: LossBatch, config: LossConfig, stats: LossStats): Tensor {
  const [low, high] = [-config.epsilon, config.epsilonHigh ?? config.epsilon]
  const held = batch.change.clamp({ min: low, max: high })
  const change = where(batch.advantages.gt(0), batch.change.minimum(held), batch.change.maximum(held))
  stats.clips(batch.change, low, high, batch)
  return rowMean(change, batch).exp().mul(batch.advantages).neg()
}
