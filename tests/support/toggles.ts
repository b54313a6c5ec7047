// For tests: another value of every setting, and the settings beside it under which it can act. Paths of settings throughout.
import { setAt } from '../../src/config/index.ts'
import type { RunInput } from '../../src/run/index.ts'

export type Changes = Readonly<Record<string, unknown>>

interface Toggle {
  /** Another value than the default; several are tried until one is accepted and acts. */
  to: readonly unknown[]
  /** What must be set beside it. */
  beside?: Changes
}

const passes = { 'rl.numIterations': 2, 'optim.learningRate': 0.05 }
const adaptive = { 'rl.useAdaptiveEntropy': true, 'rl.entropyCoef': 0.01, 'rl.entropyTarget': 9 }
const follows = { 'rl.syncRefModel': true, 'rl.refModelSyncSteps': 1, 'rl.beta': 0.1 }
const corrects = { 'rl.rolloutCorrection': 'token_truncate', 'rl.topP': 0.6, 'rl.rolloutMin': 0.2 }
const vespo = { ...passes, 'rl.lossType': 'vespo' }
const schedule = (name: string) => ({ 'optim.lrSchedulerType': name, maxSteps: 3 })
const rare = { train: ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder', 'embeddings', 'head'] }

/** Settings of learning, the same for every task. */
export const learning: Readonly<Record<string, Toggle>> = {
  dtype: { to: ['bfloat16'] },
  frozenWeights: { to: ['int8', 'nf4'], beside: { checkpointing: true, 'sampling.weights': 'exact' } },
  seed: { to: [7] },
  dataPath: { to: ['scenes:20', 'neighbours:20'] },
  evalPath: { to: ['scenes:5:3', 'neighbours:5:3'] },
  'data.seed': { to: [5] },
  'data.shuffle': { to: [false] },
  'data.split': { to: ['train'], beside: { evalRecords: 0 } },
  'data.evalFraction': { to: [0.5] },
  'data.curriculum': { to: ['large-first'] },
  'data.curriculumBuckets': { to: [1], beside: { 'data.curriculum': 'small-first' } },
  batchSize: { to: [3] },
  epochs: { to: [0.2], beside: { maxSteps: -1, batchSize: 4, evalRecords: 0 } },
  maxSteps: { to: [1] },
  'rl.preset': { to: ['dapo'] },
  'rl.numGenerations': { to: [4] },
  'rl.maxCompletionLength': { to: [7] },
  'rl.temperature': { to: [0.8] },
  'rl.topK': { to: [3] },
  'rl.topP': { to: [0.5] },
  'rl.minP': { to: [0.2] },
  'rl.repetitionPenalty': { to: [0.5] },
  'rl.lossType': { to: ['dr_grpo', 'sapo'] },
  'rl.importanceSamplingLevel': { to: ['sequence'], beside: passes },
  'rl.epsilon': { to: [0.001], beside: passes },
  'rl.epsilonHigh': { to: [0.001], beside: passes },
  'rl.delta': { to: [1.21], beside: { ...passes, 'optim.learningRate': 0.5 } },
  'rl.maxLogRatio': { to: [1e-4], beside: passes },
  'rl.sapoTemperaturePos': { to: [3], beside: { ...passes, 'rl.lossType': 'sapo' } },
  'rl.sapoTemperatureNeg': { to: [3], beside: { ...passes, 'rl.lossType': 'sapo' } },
  'rl.vespoKPos': { to: [1], beside: vespo },
  'rl.vespoLambdaPos': { to: [1], beside: vespo },
  'rl.vespoKNeg': { to: [1], beside: vespo },
  'rl.vespoLambdaNeg': { to: [1], beside: vespo },
  'rl.beta': { to: [0.5] },
  'rl.useBiasCorrectionKl': { to: [true], beside: { ...passes, 'rl.beta': 0.1 } },
  'rl.syncRefModel': { to: [true], beside: { 'rl.refModelSyncSteps': 1, 'rl.beta': 0.1 } },
  'rl.refModelMixupAlpha': { to: [0.1], beside: follows },
  'rl.refModelSyncSteps': { to: [9], beside: follows },
  'rl.scaleRewards': { to: ['batch'] },
  'rl.advantageEps': { to: [0.5] },
  'rl.ddof': { to: [0] },
  'rl.multiObjectiveAggregation': { to: ['normalize_then_sum'] },
  'rl.groupFilter': { to: [true] },
  'rl.maxResampleTimes': { to: [0], beside: { 'rl.groupFilter': true } },
  'rl.maskTruncatedCompletions': { to: [true] },
  'rl.topEntropyQuantile': { to: [0.5] },
  'rl.entropyCoef': { to: [0.2] },
  'rl.useAdaptiveEntropy': { to: [true], beside: { 'rl.entropyCoef': 0.01 } },
  'rl.entropyTarget': { to: [0], beside: adaptive },
  'rl.entropyCoefDelta': { to: [0.1], beside: adaptive },
  'rl.entropyCoefMin': { to: [0.009], beside: { ...adaptive, 'rl.entropyTarget': 0 } },
  'rl.entropyCoefMax': { to: [0.012], beside: adaptive },
  'rl.offPolicyMaskThreshold': { to: [1e-6], beside: { ...passes, 'rl.topP': 0.5 } },
  'rl.rolloutCorrection': { to: ['token_mask'], beside: { 'rl.topP': 0.5 } },
  'rl.rolloutMin': { to: [0.95], beside: corrects },
  'rl.rolloutMax': { to: [0.5], beside: corrects },
  'rl.numIterations': { to: [2] },
  'rl.gradientAccumulationSteps': { to: [2] },
  'rl.stepsPerGeneration': { to: [2] },
  'sampling.weights': { to: ['exact'] },
  'optim.learningRate': { to: [2e-3] },
  'optim.lrSchedulerType': { to: ['linear'] },
  'optim.warmupSteps': { to: [2], beside: schedule('linear') },
  'optim.numCycles': { to: [2], beside: schedule('cosine_with_restarts') },
  'optim.minLrRate': { to: [0.5], beside: schedule('cosine_with_min_lr') },
  'optim.lrEnd': { to: [5e-4], beside: schedule('polynomial') },
  'optim.power': { to: [3], beside: schedule('polynomial') },
  'optim.timescale': { to: [2], beside: schedule('inverse_sqrt') },
  'optim.adamBeta1': { to: [0.5] },
  'optim.adamBeta2': { to: [0.5] },
  'optim.adamEpsilon': { to: [0.01] },
  'optim.weightDecay': { to: [0.5] },
  'optim.maxGradNorm': { to: [1e-3] },
  'optim.emaDecay': { to: [0.5] },
  'lrScale.lora': { to: [3] },
  shuffleRewards: { to: [true] },
  'lora.rank': { to: [2] },
  'lora.alpha': { to: [16] },
  'lora.targets': { to: ['.*layers\\.0\\..*'] },
  evalRecords: { to: [1] },
  evalSteps: { to: [1] },
  saveSteps: { to: [1] },
  saveTotalLimit: { to: [1], beside: { saveSteps: 1 } },
  samplesMiB: { to: [1e-5] },
  logSteps: { to: [2] },
  tensorboard: { to: [true] },
  reportTo: { to: [['tensorboard']] },
}

/** Settings of the round trips in training. */
export const roundTrips: Readonly<Record<string, Toggle>> = {
  maxTiles: { to: [4] },
  region: { to: ['cells', 'overlay'] },
  rounding: { to: ['bf16-ref'], beside: { dtype: 'bfloat16' } },
  'loop1.weight': { to: [2] },
  'loop1.question': { to: ['<image>\nWhat is <region1>?', '<image>\nWhat is this region?'] },
  'loop2.weight': { to: [2] },
  'loop2.action': { to: ['field'] },
  'loop2.actionStd': { to: [2] },
  'loop2.promptStd': { to: [2] },
  'loop2.grid': { to: [2] },
  'loop2.beta': { to: [0.3] },
  'loop2.sampleText': { to: [true] },
  'loop2.maskLoss': { to: [0.5] },
  adaptiveLoops: { to: [true] },
  train: { to: [['lora']] },
  'lrScale.mlp1': { to: [3] },
  'lrScale.text_hidden_fcs': { to: [3] },
  'lrScale.mask_decoder': { to: [3] },
  'lrScale.prompt_encoder': { to: [3] },
  'lrScale.embeddings': { to: [3], beside: rare },
  'lrScale.head': { to: [3], beside: rare },
}

/** Settings of the task segment in training. */
export const drawing: Readonly<Record<string, Toggle>> = {
  'segment.click': { to: [2] },
  'segment.box': { to: [0] },
  'segment.actionStd': { to: [2] },
  'segment.grid': { to: [16] },
  adaptiveLoops: { to: [true], beside: { batchSize: 2, maxSteps: 3 } },
  'lrScale.mask_decoder': { to: [3] },
}

/** Settings of the point task, tried on answers that were written beforehand. */
export const placing: Readonly<Record<string, Toggle>> = {
  'points.mode': { to: ['joint'] },
  'points.coords': { to: ['thousand'] },
  'points.thinking': { to: [true] },
  'points.maxPoints': { to: [1] },
  'points.allowEmpty': { to: [false] },
  'points.oob': { to: ['invalid'] },
  'points.dupRadius': { to: [null] },
  'points.formatScore': { to: ['binary'] },
  'points.turns': { to: [2], beside: { 'points.mode': 'second-look' } },
  'points.positivePrompt': { to: ['box'] },
  'points.previousMask': { to: ['logits'] },
  'points.multimask': { to: [true] },
  'points.showMask': { to: [true], beside: { 'points.wording': 'full' } },
  'points.imageSize': { to: [84] },
  'points.wording': { to: ['full'] },
  'points.noTarget': { to: ['keep'] },
  'points.keepEasy': { to: [0.5] },
  'points.preset': { to: ['origin'] },
  'points.weight': { to: [2] },
  'points.reward.iou': { to: [2] },
  'points.reward.gain': { to: [2] },
  'points.reward.gainKind': { to: ['relative'] },
  'points.reward.gainEps': { to: [2], beside: { 'points.reward.gainKind': 'relative' } },
  'points.reward.placement': { to: [2] },
  'points.reward.alpha': { to: [2] },
  'points.reward.beta': { to: [2] },
  'points.reward.format': { to: [2] },
  'points.reward.dup': { to: [2] },
  'points.reward.oob': { to: [2] },
  'points.reward.extra': { to: [2] },
  'points.reward.abstainBonus': { to: [2], beside: { 'points.reward.tau': 100 } },
  'points.reward.tau': { to: [100] },
  'points.reward.over': { to: [2], beside: { 'points.mode': 'second-look', 'points.turns': 2 } },
  'points.reward.turn': { to: [2], beside: { 'points.mode': 'second-look', 'points.turns': 2 } },
  'points.reward.none': { to: [2], beside: { 'points.mode': 'joint' } },
  'points.reward.invalid': { to: [2] },
  'rewards.points.terms': { to: [[{ type: 'format', of: 'text' }]] },
  'rewards.iou.resolution': { to: [4], beside: { 'rewards.points.terms': [{ type: 'iou', of: 'mask' }] } },
}

/** Settings of task reason, tried on answers that were written beforehand; taughtNoise in sft. */
export const reasoning: Readonly<Record<string, Toggle>> = {
  'reason.coords': { to: ['thousand'] },
  'reason.imageSize': { to: [84] },
  'reason.wording': { to: ['full'] },
  'reason.multimask': { to: [false] },
  'reason.noTarget': { to: ['keep'] },
  'reason.preset': { to: ['seg-zero'] },
  'reason.taughtNoise': { to: [0.3] },
  'reason.reward.thinking': { to: [3] },
  'reason.reward.format': { to: [3] },
  'reason.reward.mask': { to: [3] },
  'reason.reward.boxIou': { to: [3] },
  'reason.reward.boxL1': { to: [3] },
  'reason.reward.point': { to: [3] },
  'reason.reward.count': { to: [3] },
  'reason.reward.nonRepeat': { to: [3] },
}

const judge = { 'rewards.judge.enabled': true, 'rewards.preset': 'caption' }
const lengthTerm = { 'rewards.loop1.terms': [{ type: 'length', of: 'caption' }] }

/** Settings of the rewards of the round trips, tried on captions and masks that were prepared beforehand. */
export const rewarding: Readonly<Record<string, Toggle>> = {
  'rewards.preset': { to: ['caption'] },
  'rewards.loop1.terms': { to: [[{ type: 'meteor', of: 'caption' }]] },
  'rewards.loop1.shaping': { to: [{}], beside: lengthTerm },
  'rewards.loop2.terms': { to: [[{ type: 'iou', of: 'mask' }]] },
  'rewards.loop2.shaping': { to: [{}], beside: { 'rewards.loop2.terms': [{ type: 'meteor', of: 'captionPrime' }] } },
  'rewards.judgeLoop1': { to: [true] },
  'rewards.judgeLoop2': { to: [true], beside: { 'rewards.judge.enabled': true } },
  'rewards.meteor.alpha': { to: [0.2] },
  'rewards.meteor.beta': { to: [1] },
  'rewards.meteor.gamma': { to: [0.1] },
  'rewards.meteor.tokenizer': { to: ['words'] },
  'rewards.iou.empty': { to: [0.5] },
  'rewards.iou.resolution': { to: [4] },
  'rewards.length.min': { to: [2], beside: lengthTerm },
  'rewards.length.max': { to: [30], beside: lengthTerm },
  'rewards.length.lambda': { to: [0.1], beside: lengthTerm },
  'rewards.length.power': { to: [3], beside: lengthTerm },
  'rewards.length.floor': { to: [0.9], beside: lengthTerm },
  'rewards.length.lambdaLong': { to: [2], beside: { ...lengthTerm, 'rewards.length.floorLong': 0 } },
  'rewards.length.floorLong': { to: [0.99], beside: lengthTerm },
  'rewards.judge.enabled': { to: [true], beside: { 'rewards.preset': 'caption' } },
  'rewards.judge.mode': { to: ['number'], beside: judge },
  'rewards.judge.ask': { to: ['single'], beside: judge },
  'rewards.judge.map': { to: ['affine'], beside: judge },
  'rewards.judge.maxPositives': { to: [1], beside: judge },
  'rewards.judge.minPositives': { to: [20], beside: judge },
  'rewards.judge.maxNegatives': { to: [0], beside: judge },
  'rewards.judge.selfCheck': { to: [false], beside: judge },
  'rewards.judge.canaryRate': { to: [1], beside: judge },
  'rewards.judge.maxCaptionWords': { to: [3], beside: judge },
  'rewards.judge.onInjection': { to: ['zero'], beside: judge },
  'rewards.judge.seed': { to: [9], beside: judge },
  'rewards.judge.costPerMillionIn': { to: [5], beside: judge },
  'rewards.judge.costPerMillionOut': { to: [5], beside: judge },
}

export function withChanges(base: RunInput, ...changes: readonly Changes[]): RunInput {
  const copy = structuredClone(base) as Record<string, unknown>
  for (const [path, value] of changes.flatMap((all) => Object.entries(all))) setAt(copy, path, structuredClone(value))
  return copy as RunInput
}
