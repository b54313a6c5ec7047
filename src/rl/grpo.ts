// The GRPO losses. B rows (completions), T completion tokens. Everything is float32, or float64 when the log-probs are.
// Masked positions are overwritten with 0 before anything else: no value there reaches the loss or its gradient.
import { type Refuse, refuseAt } from '../core/index.ts'
import { wide } from '../nn/index.ts'
import { arange, noGrad, type Tensor, tidy } from '../tensor/index.ts'
import { type GrpoConfig, type LossType, tokenNormalized } from './config.ts'
import { entropyThreshold } from './entropy.ts'
import { klOf } from './kl.ts'
import { LossStats } from './loss-stats.ts'
import { clampTo, type LossBatch, policyTerm, rowMean } from './policy-terms.ts'

export interface LossInput {
  /** [B, T] log-probs of the completion ids, with gradient. */
  logps: Tensor
  /** [B, T] under the weights that sampled; absent: the same weights, ratio 1. */
  oldLogps?: Tensor | null
  /** [B, T] under the KL reference; needed when beta is not 0. */
  refLogps?: Tensor | null
  /** [B, T] 0 or 1. */
  mask: Tensor
  /** [B] */
  advantages: Tensor
  /** [B, T] of the policy over the vocabulary; with gradient when entropyCoef is not 0. */
  entropies?: Tensor | null
  /** [B, T] or [B, 1] weights of rolloutWeights. */
  isRatio?: Tensor | null
  /** [B, T] as the sampler reported them, for the off-policy mask. */
  samplingLogps?: Tensor | null
  /** Leading columns that are tokens; the rest are other actions, which no entropy rule concerns. All when absent. */
  tokenColumns?: number
  /** [B, T] 0 where a column was not sampled (greedy words): it stays out of the policy term. */
  sampled?: Tensor | null
}

export type LossConfig = Pick<
  GrpoConfig,
  | 'lossType'
  | 'importanceSamplingLevel'
  | 'epsilon'
  | 'epsilonHigh'
  | 'delta'
  | 'maxLogRatio'
  | 'sapoTemperaturePos'
  | 'sapoTemperatureNeg'
  | 'vespoKPos'
  | 'vespoLambdaPos'
  | 'vespoKNeg'
  | 'vespoLambdaNeg'
  | 'beta'
  | 'useBiasCorrectionKl'
  | 'maxCompletionLength'
  | 'topEntropyQuantile'
  | 'entropyCoef'
  | 'offPolicyMaskThreshold'
  /** Micro-batches actually in this optimizer step; 1 in evaluation. */
  | 'gradientAccumulationSteps'
> & {
  /** Loss-mask tokens of the whole optimizer batch, all processes; dapo, cispo and vespo need it. */
  numItemsInBatch?: number
  numProcesses?: number
  /** Entropy threshold over all processes; found from this micro-batch when absent. */
  entropyThreshold?: number
}

export interface LossResult {
  /** Divided by its normaliser and by the accumulation; ready for backward. */
  loss: Tensor
  /** Before the division by accumulation and before the entropy bonus; KL included. */
  policyLoss: Tensor
  /** [B, T], or [B, 1] for row losses; not masked, KL included. */
  perTokenLoss: Tensor
  /** [B, T] or [B, 1] before the delta cap, without gradient. */
  ratio: Tensor
  klPerToken: Tensor | null
  entropyMask: Tensor | null
  /** Mean entropy as it enters the loss, before its coefficient. */
  entropyBonus: Tensor | null
  /** [B, 1] 1 where the off-policy mask keeps the row. */
  keptRows: Tensor | null
  /** [B, 1] weights of vespo. */
  phi: Tensor | null
  /** Computes values under TRL's names, best once backward has started; what it returns waits for the device, once. */
  measure(): () => Record<string, number>
  /** What they are computed from. */
  uses: unknown
}

/** The loss of one micro-batch. */
export function grpoLoss(input: LossInput, config: LossConfig): LossResult {
  checkInput(input, config)
  return tidy(() => {
    const stats = new LossStats()
    const batch = prepare(input, config)
    const kl = config.beta === 0 ? null : klTerm(batch, config)
    const entropyMask = config.topEntropyQuantile < 1 ? topEntropy(batch, config) : null
    const keptRows = config.offPolicyMaskThreshold === null ? null : onPolicyRows(input, batch, config)
    const { value, phi } = policyTerm(batch, config, stats)
    const gain = weighted(value, batch, [entropyMask, keptRows, input.sampled ?? null], config)
    const perTokenLoss = withKl(gain, kl, batch, config)
    const policyLoss = aggregate(perTokenLoss, batch, config)
    const own = () => (kl ? aggregate(gain, batch, config) : policyLoss) // KL is logged on its own
    stats.add([gain, policyLoss], () => ({ policy_loss: own() }))
    const entropyBonus = config.entropyCoef === 0 ? null : meanEntropy(batch, entropyMask, config)
    const shared = policyLoss.div(accumulation(config))
    const loss = entropyBonus ? shared.sub(entropyBonus.mul(config.entropyCoef)) : shared
    if (kl) stats.kl(kl, batch)
    if (batch.entropies) stats.entropy(batch.entropies, batch, entropyMask)
    const ratio = batch.ratio.detach()
    const parts = { loss, policyLoss, perTokenLoss, ratio, klPerToken: kl, entropyMask, entropyBonus, keptRows, phi }
    return { ...parts, measure: () => stats.measure(), uses: [batch, stats.uses] }
  })
}

function accumulation(config: LossConfig): number {
  return tokenNormalized.has(config.lossType) ? 1 : config.gradientAccumulationSteps
}

const bad: Refuse = refuseAt('grpoLoss')

const rowLosses: ReadonlySet<LossType> = new Set(['luspo', 'gmpo'])

function checkInput(input: LossInput, config: LossConfig): void {
  const [rows, tokens] = input.logps.shape
  if (input.logps.ndim !== 2) bad('logps', '[B, T]', input.logps.shape)
  for (const name of ['oldLogps', 'refLogps', 'mask', 'entropies', 'samplingLogps'] as const) {
    const t = input[name]
    if (t && (t.ndim !== 2 || t.size(0) !== rows || t.size(1) !== tokens)) bad(name, `[${rows}, ${tokens}]`, t.shape)
  }
  const { advantages, isRatio } = input
  if (advantages.ndim !== 1 || advantages.size(0) !== rows) bad('advantages', `[${rows}]`, advantages.shape)
  if (isRatio && (isRatio.ndim !== 2 || isRatio.size(0) !== rows || ![1, tokens].includes(isRatio.size(1))))
    bad('isRatio', `[${rows}, ${tokens}] or [${rows}, 1]`, isRatio.shape)
  if (rowLosses.has(config.lossType) && (config.topEntropyQuantile < 1 || (isRatio && isRatio.size(1) !== 1)))
    bad('weights', `none per token: ${config.lossType} has one loss per row`, 'an entropy filter or token weights')
  if (config.beta !== 0 && !input.refLogps) bad('refLogps', 'given, since beta is not 0', 'none')
  if ((config.topEntropyQuantile < 1 || config.entropyCoef !== 0) && !input.entropies)
    bad('entropies', 'given, since topEntropyQuantile or entropyCoef uses them', 'none')
  if (tokenNormalized.has(config.lossType) && config.numItemsInBatch === undefined)
    bad('numItemsInBatch', `the tokens of the optimizer batch, which ${config.lossType} divides by`, 'none')
}

function prepare(input: LossInput, config: LossConfig): LossBatch {
  const real = input.mask.ne(0)
  const masked = real.logicalNot()
  const logps = wide(input.logps).maskedFill(masked, 0)
  const same = (t: Tensor) => t.to(logps.dtype).maskedFill(masked, 0)
  const guard = (t: Tensor) => (config.maxLogRatio === null ? t : clampTo(t, config.maxLogRatio))
  const mask = real.to(logps.dtype)
  const tokens = mask.sum(-1, { keepdim: true })
  const change = guard(logps.sub(input.oldLogps ? same(input.oldLogps).detach() : logps.detach()))
  const batch = {
    logps,
    change,
    mask,
    real,
    words: wordsOf(real, input.tokenColumns),
    advantages: input.advantages.to(logps.dtype).detach().unsqueeze(-1),
    tokens,
    divisor: tokens.clampMin(1),
    klRatio: input.refLogps ? guard(same(input.refLogps).detach().sub(logps)) : null,
    entropies: input.entropies ? same(input.entropies) : null,
    isRatio: input.isRatio ? input.isRatio.to(logps.dtype).detach() : null,
  }
  return { ...batch, ratio: logRatio(batch, config).exp() }
}

/** [B, T] */
function wordsOf(real: Tensor, tokens: number | undefined): Tensor {
  const T = real.size(1)
  if (tokens === undefined || tokens === T) return real
  return arange(T, { device: real.device }).lt(tokens).unsqueeze(0).logicalAnd(real)
}

function logRatio(batch: Omit<LossBatch, 'ratio'>, config: LossConfig): Tensor {
  if (config.importanceSamplingLevel === 'token') return batch.change
  const row = rowMean(batch.change, batch)
  if (config.importanceSamplingLevel === 'sequence') return row
  return batch.logps.sub(batch.logps.detach()).add(row.detach()) // value of the row, gradient of the token
}

/** k3, times the ratio (with its gradient) when the bias is corrected. [B, T] */
function klTerm(batch: LossBatch, config: LossConfig): Tensor {
  const kl = klOf(batch.klRatio!)
  return config.useBiasCorrectionKl ? kl.mul(batch.ratio) : kl
}

function topEntropy(batch: LossBatch, config: LossConfig): Tensor {
  return noGrad(() => {
    const entropies = batch.entropies!.detach()
    const limit = config.entropyThreshold ?? entropyThreshold(entropies, batch.words, config.topEntropyQuantile)
    return entropies.ge(limit).logicalOr(batch.words.logicalNot()).logicalAnd(batch.real).to(batch.mask.dtype)
  })
}

/** Rows with negative advantage stay only if their mean log-ratio sampler to policy is within the threshold. [B, 1] */
function onPolicyRows(input: LossInput, batch: LossBatch, config: LossConfig): Tensor {
  return noGrad(() => {
    const sampled = input.samplingLogps ?? input.oldLogps
    const clean = sampled ? sampled.to(batch.logps.dtype).maskedFill(batch.real.logicalNot(), 0) : batch.logps
    const drift = rowMean(clean.sub(batch.logps), batch)
    const near = drift.le(config.offPolicyMaskThreshold!)
    return batch.advantages.ge(0).logicalOr(near).to(batch.mask.dtype)
  })
}

function weighted(value: Tensor, batch: LossBatch, masks: readonly (Tensor | null)[], config: LossConfig): Tensor {
  let out = value
  const wholeRows = rowLosses.has(config.lossType) // one value a row: nothing per token can be left out
  for (const mask of masks) if (mask && !(wholeRows && mask.size(1) > 1)) out = out.mul(mask)
  if (batch.isRatio && config.lossType !== 'vespo') out = out.mul(cleanWeights(batch))
  return out
}

function cleanWeights({ isRatio, real }: LossBatch): Tensor {
  return isRatio!.size(1) === 1 ? isRatio! : isRatio!.maskedFill(real.logicalNot(), 1)
}

function withKl(value: Tensor, kl: Tensor | null, batch: LossBatch, config: LossConfig): Tensor {
  if (!kl) return value
  return value.add((config.lossType === 'gmpo' ? rowMean(kl, batch) : kl).mul(config.beta))
}

/** Tokens of the optimizer batch per process: gradients are averaged over processes. */
function itemsPerProcess(config: LossConfig): number {
  return Math.max(config.numItemsInBatch!, 1) / (config.numProcesses ?? 1)
}

function aggregate(value: Tensor, batch: LossBatch, config: LossConfig): Tensor {
  const { mask } = batch
  switch (config.lossType) {
    case 'grpo':
    case 'sapo':
      return rowMean(value, batch).mean() // over B, rows without tokens included
    case 'bnpo':
      return value.mul(mask).sum().div(mask.sum().clampMin(1))
    case 'dr_grpo':
      return value
        .mul(mask)
        .sum()
        .div(mask.size(0) * config.maxCompletionLength)
    case 'dapo':
    case 'cispo':
    case 'vespo':
      return value.mul(mask).sum().div(itemsPerProcess(config))
    case 'luspo':
      return value.mul(batch.tokens).mean()
    case 'gmpo':
      return value.mean()
  }
}

/** Mean over the tokens that it acts on, whatever the loss type divides its policy term by. */
function meanEntropy(batch: LossBatch, entropyMask: Tensor | null, config: LossConfig): Tensor {
  const words = batch.words.to(batch.mask.dtype)
  const mask = entropyMask ? entropyMask.mul(words) : words
  const sum = batch.entropies!.mul(mask).sum()
  return sum.div(mask.sum().clampMin(1)).div(config.gradientAccumulationSteps)
}
