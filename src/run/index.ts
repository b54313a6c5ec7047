// Runs: settings composed once, the life of a training run, its folder and checkpoints, evaluation, doctor, dry run.
// May import everything below: tasks, rl, models, rewards, data, tracking, checkpoint and the rest.
// Start reading at train.ts, then loop.ts.

export { type ComparedModels, compareModels, type ModelSide, type RecordChange } from './compare-models.ts'
export { defaultDropout, LoraConfig, RunConfig, type RunInput, resolveRun } from './config.ts'
export { deviceOf, disposeModel, openModel } from './device.ts'
export * from './doctor.ts'
export * from './dry-run.ts'
export { type EvaluateModelOptions, evaluateModel, type ModelEvaluation } from './evaluate-model.ts'
export { Encoder } from './features.ts'
export type { Host, Progress, RunResult, Scores } from './host.ts'
export { modelFileHashes, weightHashes } from './identity.ts'
export { judgeLine } from './judge-watch.ts'
export { Learner } from './learner.ts'
export { loadTrained } from './load-trained.ts'
export * from './memory-plan.ts'
export { runOf } from './run-parts.ts'
export { planScaling, type ScalingRow, scalingModel } from './scaling-plan.ts'
export * from './sft.ts'
export { commonFacts, groupText, rewardLines, sharesText, totalSteps } from './start-up.ts'
export { chosenByFile, overStored, resumedSettings, storedSettings } from './stored-settings.ts'
export * from './train.ts'
export { settingsToEvaluate } from './trained-records.ts'
