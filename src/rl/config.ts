import { z } from 'zod'
import { oneOf, optional, setting } from '../config/index.ts'
import { type Refuse, refuseAt } from '../core/index.ts'
import { truncates } from '../nn/index.ts'
import { needsOldLogps } from './plan.ts'

export const lossTypes = ['grpo', 'bnpo', 'dr_grpo', 'dapo', 'sapo', 'cispo', 'vespo', 'luspo', 'gmpo'] as const
export type LossType = (typeof lossTypes)[number]

/** Losses divided by the tokens of the whole optimizer batch, which the caller must count. */
export const tokenNormalized: ReadonlySet<LossType> = new Set(['dapo', 'cispo', 'vespo'])
/** Losses with the clipped surrogate: epsilon, epsilonHigh and delta act on them. */
export const clipped: ReadonlySet<LossType> = new Set(['grpo', 'bnpo', 'dr_grpo', 'dapo', 'luspo'])

export const rolloutModes = ['token_truncate', 'token_mask', 'sequence_truncate', 'sequence_mask'] as const
export const grpoPresetNames = ['trl', 'r1v', 'drgrpo', 'dapo', 'gspo', 'sapo'] as const
export type GrpoPreset = (typeof grpoPresetNames)[number]

export const GrpoConfig = z.strictObject({
  preset: optional(z.enum(grpoPresetNames), 'values of a published recipe for whatever is not given'),

  numGenerations: setting(z.int().min(2), 8, 'completions per prompt (K)'),
  maxCompletionLength: setting(z.int().positive(), 256, 'new tokens at most; also the divisor of dr_grpo'),
  temperature: setting(z.number().positive(), 1, 'divides the logits, in sampling and in scoring'),
  topK: setting(z.int().nonnegative(), 0, 'sample among the k largest; 0 is off'),
  topP: setting(z.number().gt(0).max(1), 1, 'sample from the largest probabilities that reach this mass; 1 is off'),
  minP: optional(z.number().min(0).max(1), 'drop tokens below this share of the largest probability'),
  repetitionPenalty: setting(
    z.number().positive(),
    1,
    'divides positive and multiplies negative scores of seen tokens; 1 is off',
  ),

  lossType: oneOf(lossTypes, 'per-token objective and its normaliser'),
  importanceSamplingLevel: oneOf(
    ['token', 'sequence', 'sequence_token'],
    'ratio of each token, of the whole row (GSPO), or of the row with the gradient of the token',
  ),
  epsilon: setting(z.number().positive(), 0.2, 'the ratio is clamped above 1 - epsilon; in log space for gmpo'),
  epsilonHigh: optional(z.number().positive(), 'upper clip, epsilon if null; the cap itself for cispo'),
  delta: optional(z.number().positive(), 'cap of the ratio where the advantage is negative'),
  maxLogRatio: setting(
    z.number().positive().nullable(),
    20,
    'log-ratios are clamped to this range before exp; null: no guard',
  ),
  sapoTemperaturePos: setting(z.number().positive(), 1, 'slope of sapo for positive advantages'),
  sapoTemperatureNeg: setting(z.number().positive(), 1.05, 'slope of sapo for the others'),
  vespoKPos: setting(
    z.number().nonnegative(),
    2,
    'k in the weight exp(lambda + k log w - lambda w) of vespo, advantage at least 0',
  ),
  vespoLambdaPos: setting(z.number().nonnegative(), 3, 'lambda in that weight, advantage at least 0'),
  vespoKNeg: setting(z.number().nonnegative(), 3, 'k in that weight, negative advantage'),
  vespoLambdaNeg: setting(z.number().nonnegative(), 2, 'lambda in that weight, negative advantage'),

  beta: setting(z.number().nonnegative(), 0.04, 'weight of the KL term (k3); 0 skips the reference pass'),
  useBiasCorrectionKl: setting(z.boolean(), false, 'multiply the KL term by the ratio, gradient included'),
  syncRefModel: setting(z.boolean(), false, 'move the KL reference towards the policy'),
  refModelMixupAlpha: setting(
    z.number().gt(0).max(1),
    0.6,
    'a sync makes the reference alpha * policy + (1 - alpha) * reference',
  ),
  refModelSyncSteps: setting(z.int().positive(), 512, 'optimizer steps between syncs of the reference'),

  scaleRewards: oneOf(['group', 'batch', 'none'], 'which standard deviation divides the advantages'),
  advantageEps: setting(z.number().positive(), 1e-4, 'added to that standard deviation'),
  ddof: setting(z.union([z.literal(0), z.literal(1)]), 1, '1: sample standard deviation, 0: population'),
  multiObjectiveAggregation: oneOf(
    ['sum_then_normalize', 'normalize_then_sum'],
    'normalise the weighted sum, or each reward before summing (GDPO)',
  ),
  groupFilter: setting(z.boolean(), false, 'replace groups whose rewards are all equal by further prompts'),
  maxResampleTimes: setting(z.int().nonnegative(), 3, 'rounds of replacement at most'),
  maskTruncatedCompletions: setting(z.boolean(), false, 'rows cut at maxCompletionLength stay out of the loss'),

  topEntropyQuantile: setting(z.number().min(0).max(1), 1, 'share of tokens, by entropy, that the policy term uses'),
  entropyCoef: setting(z.number(), 0, 'weight of the entropy bonus'),
  useAdaptiveEntropy: setting(z.boolean(), false, 'steer entropyCoef towards entropyTarget'),
  entropyTarget: setting(z.number().nonnegative(), 0.2, 'entropy below which the bonus acts and grows'),
  entropyCoefDelta: setting(z.number().nonnegative(), 0.005, 'change of entropyCoef per step'),
  entropyCoefMin: setting(z.number(), 0, 'smallest adaptive entropyCoef'),
  entropyCoefMax: setting(z.number(), 1, 'largest adaptive entropyCoef'),

  offPolicyMaskThreshold: optional(
    z.number(),
    'a row with negative advantage is left out of the policy term once the mean of log p(sampling) - log p(now) over its tokens exceeds this; null: never',
  ),
  rolloutCorrection: optional(
    z.enum(rolloutModes),
    'weigh each token or row by its probability under the policy over that under the sampler (which top-p or merged weights change), cut or dropped outside rolloutMin and rolloutMax; null: no weights',
  ),
  rolloutMin: optional(z.number().nonnegative(), 'lower bound of those weights'),
  rolloutMax: setting(z.number().positive().nullable(), 3, 'upper bound of those weights'),

  numIterations: setting(z.int().positive(), 1, 'passes over each generation batch'),
  gradientAccumulationSteps: setting(z.int().positive(), 1, 'micro-batches per optimizer step'),
  stepsPerGeneration: optional(
    z.int().positive(),
    'micro-batches sampled together before learning starts; null: gradientAccumulationSteps, so one optimizer step',
  ),
})
export type GrpoConfig = z.infer<typeof GrpoConfig>
export type GrpoInput = z.input<typeof GrpoConfig>

export const grpoPresets: Readonly<Record<GrpoPreset, GrpoInput>> = {
  // of TRL 1.13
  trl: { lossType: 'dapo', beta: 0, useBiasCorrectionKl: true, numGenerations: 8, maxCompletionLength: 512 },
  r1v: { lossType: 'grpo', beta: 0.04, numGenerations: 8 },
  drgrpo: { lossType: 'dr_grpo', scaleRewards: 'none', beta: 0 },
  dapo: {
    lossType: 'dapo',
    epsilon: 0.2,
    epsilonHigh: 0.28,
    beta: 0,
    groupFilter: true,
    maskTruncatedCompletions: true,
  },
  gspo: { lossType: 'grpo', importanceSamplingLevel: 'sequence', epsilon: 3e-4, epsilonHigh: 4e-4, beta: 0 },
  sapo: { lossType: 'sapo', beta: 0 },
}

/** The preset's values under the given ones (as typed by the user, before defaults), then the defaults. Validated. */
export function resolveGrpo(given: GrpoInput = {}, known: KnownOfRun = {}): GrpoConfig {
  const base = given.preset ? grpoPresets[given.preset] : {}
  const said = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  const config = GrpoConfig.parse({ ...base, ...said })
  // a preset's correction acts as soon as there is a KL term
  if (config.beta === 0 && !known.otherBeta && said.useBiasCorrectionKl === undefined)
    config.useBiasCorrectionKl = false
  validateGrpo(config, known)
  return config
}

/** What only the run knows. */
interface KnownOfRun {
  /** A task has its own KL weight in addition to `beta`. */
  otherBeta?: boolean
}

/** Refuses settings that contradict each other or would have no effect. */
function validateGrpo(c: GrpoConfig, known: KnownOfRun): void {
  const high = c.epsilonHigh ?? c.epsilon
  checkLossType(c, high)
  if (!known.otherBeta) checkKl(c)
  checkEntropy(c)
  checkSteps(c)
  const ownPolicy = c.rolloutCorrection === null && !truncates(c)
  if (c.offPolicyMaskThreshold !== null && ownPolicy && !needsOldLogps(stepsOf(c))) {
    const hint =
      'with one pass and an untruncated sampler no row has drifted: set numIterations, or a sampler such as topP'
    refuse('offPolicyMaskThreshold', 'null', c.offPolicyMaskThreshold, hint)
  }
  if (c.rolloutMin !== null && c.rolloutMax !== null && c.rolloutMin > c.rolloutMax)
    refuse('rolloutMin', `at most rolloutMax (${c.rolloutMax})`, c.rolloutMin)
}

const refuse: Refuse = refuseAt('grpo')

function checkLossType(c: GrpoConfig, high: number): void {
  const { lossType: type, importanceSamplingLevel: level } = c
  if (type === 'cispo' && high < 1)
    refuse('epsilonHigh', 'at least 1 for cispo', high, 'it is the cap of the weight itself; 5 is usual')
  if (c.delta !== null && !clipped.has(type)) refuse('delta', `null for ${type}, which does not clip`, c.delta)
  if (c.delta !== null && c.delta <= 1 + high) refuse('delta', `above 1 + epsilonHigh (${1 + high})`, c.delta)
  if (type === 'luspo' && level !== 'sequence') refuse('importanceSamplingLevel', 'sequence for luspo', level)
  if (type === 'luspo' && c.beta !== 0)
    refuse('beta', '0 for luspo', c.beta, 'a per-token KL has no place in a row loss')
  if ((type === 'gmpo' || type === 'vespo') && level !== 'token')
    refuse('importanceSamplingLevel', `token for ${type}, which forms its own row weight`, level)
  if (level === 'sequence_token' && !clipped.has(type))
    refuse('importanceSamplingLevel', `token or sequence for ${type}`, level)
  if (clipped.has(type) && c.epsilon >= 1) refuse('epsilon', 'below 1', c.epsilon)
  if (type === 'luspo') checkLuspo(c)
  if (type === 'gmpo') checkGmpo(c)
}

function checkLuspo(c: GrpoConfig): void {
  const why = 'luspo has one loss per row'
  if (c.topEntropyQuantile < 1) refuse('topEntropyQuantile', '1 for luspo', c.topEntropyQuantile, why)
  if (c.rolloutCorrection?.startsWith('token'))
    refuse('rolloutCorrection', 'a sequence mode for luspo', c.rolloutCorrection, why)
}

function checkGmpo(c: GrpoConfig): void {
  const why = 'gmpo has one weight per row'
  if (c.topEntropyQuantile < 1) refuse('topEntropyQuantile', '1 for gmpo', c.topEntropyQuantile, why)
  if (c.offPolicyMaskThreshold !== null)
    refuse('offPolicyMaskThreshold', 'null for gmpo', c.offPolicyMaskThreshold, why)
  if (c.rolloutCorrection !== null) refuse('rolloutCorrection', 'null for gmpo', c.rolloutCorrection, why)
}

function checkKl(c: GrpoConfig): void {
  if (c.beta !== 0) return
  if (c.syncRefModel) refuse('syncRefModel', 'false with beta 0', true, 'there is no reference to move')
  if (c.useBiasCorrectionKl) refuse('useBiasCorrectionKl', 'false with beta 0', true, 'there is no KL term to correct')
}

function checkEntropy(c: GrpoConfig): void {
  if (!c.useAdaptiveEntropy) return
  if (c.entropyCoefMin > c.entropyCoefMax)
    refuse('entropyCoefMin', `at most entropyCoefMax (${c.entropyCoefMax})`, c.entropyCoefMin)
}

function stepsOf(c: GrpoConfig) {
  const { gradientAccumulationSteps, numIterations } = c
  return {
    gradientAccumulationSteps,
    numIterations,
    stepsPerGeneration: c.stepsPerGeneration ?? gradientAccumulationSteps,
  }
}

function checkSteps(c: GrpoConfig): void {
  const accumulated = c.gradientAccumulationSteps
  const perGeneration = c.stepsPerGeneration ?? accumulated
  const [small, large] = [Math.min(accumulated, perGeneration), Math.max(accumulated, perGeneration)]
  if (large % small !== 0)
    refuse('stepsPerGeneration', `a multiple or a divisor of gradientAccumulationSteps (${accumulated})`, perGeneration)
}

/** What a user should know about settings that work. */
export function grpoWarnings(c: GrpoConfig): string[] {
  const out: string[] = []
  if (truncates(c) && c.rolloutCorrection === null)
    out.push('topK, topP, minP or repetitionPenalty is on: the sampler is not the policy that the loss scores')
  if (c.importanceSamplingLevel === 'sequence' && ['dapo', 'bnpo', 'dr_grpo', 'cispo'].includes(c.lossType))
    out.push(`${c.lossType} at sequence level weights each row by its length`)
  if (c.multiObjectiveAggregation === 'normalize_then_sum' && c.scaleRewards !== 'group')
    out.push('scaleRewards has no effect with normalize_then_sum')
  if (c.lossType === 'bnpo' && c.gradientAccumulationSteps > 1)
    out.push('bnpo divides by the tokens of each micro-batch: accumulation does not equal one large batch')
  return out
}
