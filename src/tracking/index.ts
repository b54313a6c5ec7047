// Tracking: the run folder (config.json, events.jsonl, samples.jsonl, timing.jsonl, TensorBoard files), its readers, the status line.
// May import rows below 5; needs core alone.
// Start reading at events.ts, then run-writer.ts.
export { describeEnvironment } from './environment.ts'
export type {
  CheckpointEvent,
  EvalEvent,
  Interval,
  MaskRle,
  Metrics,
  RunEvent,
  Sample,
  StartEvent,
  StepEvent,
  StopEvent,
  TimingLine,
  WarningEvent,
} from './events.ts'
export { JsonLines, readLines } from './json-lines.ts'
export {
  clock,
  type Progress,
  type ProgressFields,
  type ProgressOptions,
  type ProgressStream,
  progress,
  short,
} from './progress.ts'
export { type Run, readRun } from './run-reader.ts'
export { type NewRun, type RunPosition, RunWriter, type RunWriterOptions, runFiles } from './run-writer.ts'
export { type BootstrapOptions, bootstrapInterval, bootstrapRatioInterval, quantile } from './statistics.ts'
export { crc32c, TensorboardWriter } from './tensorboard.ts'
