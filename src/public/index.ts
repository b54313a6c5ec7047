// The public API: one small file per entry point of the package. Internal index.ts files of the rooms may change freely.
// May import every room. `train`, `sft` and `evaluate` start an engine thread; `/tensor` and `/models` compute in the caller's.
// Start reading here, then rewards.ts, data.ts and tasks.ts.
export { type LogLevel, log, Mismatch, type MismatchInfo } from '../core/index.ts'
export { renderReport } from '../dashboard/index.ts'
export { evaluate, type StartOptions, type SupervisedOptions, sft, train } from '../host/index.ts'
export {
  type EvaluateModelOptions,
  type ModelEvaluation,
  type Progress,
  type RunConfig,
  type RunInput,
  type RunResult,
  resolveRun,
  type SftResult,
  type SftSettings,
} from '../run/index.ts'
export {
  type BootstrapOptions,
  bootstrapInterval,
  type EvalEvent,
  type Interval,
  type Metrics,
  type Run,
  type RunEvent,
  readRun,
  type StepEvent,
} from '../tracking/index.ts'
