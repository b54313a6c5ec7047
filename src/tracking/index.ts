// Tracking: the run folder (config.json, events.jsonl, samples.jsonl, timing.jsonl, TensorBoard files), its readers, the status line.
// May import rows below 5; needs core, engine (where the package is) and mask.
// Start reading at events.ts, then run-writer.ts.
export { AlarmWatch } from './behaviour/alarm-watch.ts'
export { type Alarm, alarmPrefix, alarmRules, alarmText, heldOutAlarm, valueText } from './behaviour/alarms.ts'
export {
  type Behaviour,
  type BehaviourItem,
  behaviourOf,
  type TaskBehaviour,
  windowSamples,
} from './behaviour/behaviour.ts'
export type { Pair, Pairs } from './behaviour/pairs.ts'
export { describeEnvironment, type EnvironmentFacts, gitCommit } from './environment.ts'
export type {
  Author,
  CheckpointEvent,
  EvalEvent,
  Interval,
  MaskRle,
  Metrics,
  ReadSample,
  RunEvent,
  Sample,
  SampleRef,
  Shown,
  ShownPoint,
  StartEvent,
  StepEvent,
  StopEvent,
  TaskName,
  TimingLine,
  WarningEvent,
} from './events.ts'
export { FollowedRun, followWhole, type RunEnd } from './follow.ts'
export { JsonLines, readLines } from './json-lines.ts'
export { MetricTable, type SeriesPoints, type SeriesQuery } from './metric-table.ts'
export { maskPath } from './outline.ts'
export { shownOf } from './parse.ts'
export {
  clock,
  type Progress,
  type ProgressFields,
  type ProgressOptions,
  type ProgressStream,
  progress,
  short,
} from './progress.ts'
export { maxImageBytes, runFiles } from './run-files.ts'
export { type Run, readRun, runTasks, startFacts } from './run-reader.ts'
export { type NewRun, type RunPosition, RunWriter, type RunWriterOptions } from './run-writer.ts'
export { SampleIndex } from './sample-index.ts'
export { type SampleOrder, type SampleQuery, type SampleRows, sampleOrders, selectSamples } from './sample-query.ts'
export {
  apartFrom,
  type BootstrapOptions,
  bootstrapInterval,
  bootstrapRatioInterval,
  type PairedSums,
  pairedBootstrap,
  quantile,
  type RatioChange,
  type Sums,
  smallSampleNote,
} from './statistics.ts'
export { crc32c, TensorboardWriter } from './tensorboard.ts'
export { pictureOf } from './trackers/pictures.ts'
export { type Picture, type TrackerName, trackerNames } from './trackers/tracker.ts'
export type { AwayTracker } from './trackers/trackers.ts'
