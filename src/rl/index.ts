// Learning: advantages, GRPO losses, masks, optimizer, EMA, schedules, and what checks them against golden data.
// May import everything below row 6: data, models, rewards, tracking, checkpoint, nn, tensor, config, core.
// Start reading at grpo.ts and advantages.ts; config.ts for the settings.
export { type AdvantageOptions, type Advantages, groupAdvantages, type Score } from './advantages.ts'
export {
  type BatchSizes,
  GrpoConfig,
  type GrpoInput,
  type GrpoPreset,
  grpoPresetNames,
  grpoPresets,
  type LossType,
  lossTypes,
  resolveGrpo,
  rolloutModes,
  tokenNormalized,
  validateGrpo,
} from './config.ts'
export { doctor, type Finding } from './doctor.ts'
export { type DryRun, type DryRunRow, dryRun } from './dry-run.ts'
export {
  adaptEntropy,
  currentEntropyCoef,
  type EntropyState,
  entropyThreshold,
  initialEntropyState,
} from './entropy.ts'
export { type Evaluation, evaluateBatch, type RecordScores, summariseScores } from './evaluate.ts'
export { type EvaluateModelOptions, evaluateModel, type ModelEvaluation } from './evaluate-model.ts'
export { grpoLoss, type LossConfig, type LossInput, type LossResult } from './grpo.ts'
export { type KlEstimator, klClamped, klOf } from './kl.ts'
export { Learner } from './learner.ts'
export { diceLoss } from './mask-loss.ts'
export { type CompletionMasks, completionMasks, type MaskOptions } from './masks.ts'
export {
  type GenerationPlan,
  type GenerationSizes,
  generationPlan,
  needsOldLogps,
  repeatOrder,
} from './repeat-sampler.ts'
export { logpDifference, type RolloutOptions, type RolloutWeights, rolloutWeights } from './rollout.ts'
export {
  LoraConfig,
  RunConfig,
  type RunInput,
  resolveRun,
  type TrainGroup,
  trainGroups,
} from './run-config.ts'
export { completion, readRows, type SftRow, segmentRow } from './sft.ts'
export { type SftResult, type SftSettings, sftRun } from './sft-run.ts'
export { type Group, learn, type Run, sampleGroups } from './step.ts'
export { StepReport } from './step-report.ts'
export { loadTrained, type TrainedOptions } from './trained.ts'
export { type Host, type Progress, type RunResult, runOf, Trainer, train } from './trainer.ts'
