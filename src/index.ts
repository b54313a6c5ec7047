// What a library user imports from 'roundtrip-rl'. The doors of the rooms are 'roundtrip-rl/rewards', '/data', '/models', '/tensor'
// and '/tasks'. `train`, `sft` and `evaluate` start an engine thread; what is in '/tensor' and '/models' computes in the caller's.
export { type LogLevel, log, Mismatch, type MismatchInfo } from './core/index.ts'
export { renderReport } from './dashboard/index.ts'
export type { Example } from './data/index.ts'
export { evaluate, type StartOptions, type SupervisedOptions, sft, train } from './host/index.ts'
export { type Family, type GroundedFamily, isGrounded, openFamily } from './models/index.ts'
export type { Answer, Reward } from './rewards/index.ts'
export type { Sample as PolicySample, Task } from './rl/index.ts'
export {
  doctor,
  type EvaluateModelOptions,
  evaluateModel,
  type Finding,
  type Host,
  type ModelEvaluation,
  type Progress,
  type RunConfig,
  type RunInput,
  type RunResult,
  resolveRun,
  type SftResult,
  type SftSettings,
} from './run/index.ts'
export type { TaskKind } from './tasks/index.ts'
export {
  bootstrapInterval,
  type EvalEvent,
  type Interval,
  type Metrics,
  type Run,
  type RunEvent,
  readRun,
  type Sample,
  type StepEvent,
} from './tracking/index.ts'
