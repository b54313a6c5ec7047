// The GRPO method: sample, score, learn, update averages; losses, advantages, masks, entropy. No model, no file, no task by name.
// May import optim, distributed, nn, tensor, config and core.
// Start reading at step.ts, then task.ts and grpo.ts.
export { groupAdvantages, type Score } from './advantages.ts'
export { GrpoConfig, type GrpoInput, grpoWarnings, type LossType, lossTypes, resolveGrpo } from './config.ts'
export { type EntropyState, initialEntropyState } from './entropy.ts'
export { advantagesOf, columnSum, columnsOf, decodedTokens, type Group, type Scored } from './group.ts'
export { grpoLoss, type LossConfig, type LossInput, type LossResult } from './grpo.ts'
export { klOf } from './kl.ts'
export { allPlainDensities, NonFinite, plainDensities } from './learn.ts'
export { completionMasks } from './masks.ts'
export { needsOldLogps } from './plan.ts'
export { type RolloutOptions, rolloutWeights } from './rollout.ts'
export type { Batch, Roles, Run } from './run.ts'
export { sampleAndScore, withAdvantages } from './sample.ts'
export { ownPieces } from './share.ts'
export { step } from './step.ts'
export { StepReport } from './step-report.ts'
export { Stopped } from './stopped.ts'
export {
  type ActionColumns,
  type Densities,
  type Draw,
  type Item,
  type Json,
  type Sample,
  type Shown,
  sampleStream,
  type Task,
} from './task.ts'
