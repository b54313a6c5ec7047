// Tracking: the run folder (config.json, events.jsonl, samples.jsonl, timing.jsonl, TensorBoard files), its readers, the status line.
// May import rows below 5; needs core, engine (where the package is) and mask.
// Start reading at events.ts, then run-writer.ts.
export { AlarmWatch } from './behaviour/alarm-watch.ts'
export { type Alarm, alarmPrefix, alarmText, valueText } from './behaviour/alarms.ts'
export { type Behaviour, type BehaviourItem, behaviourOf, type TaskBehaviour } from './behaviour/behaviour.ts'
export type { Pair } from './behaviour/pairs.ts'
export { describeEnvironment } from './environment.ts'
export type {
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
  StepEvent,
  TaskName,
} from './events.ts'
export { FollowedRun, followWhole } from './follow.ts'
export { JsonLines, readLines } from './json-lines.ts'
export { maskPath } from './outline.ts'
export { shownOf } from './parse.ts'
export { clock, progress, short } from './progress.ts'
export { maxImageBytes, runFiles } from './run-files.ts'
export { type Run, readRun, startFacts } from './run-reader.ts'
export { type RunPosition, RunWriter, type RunWriterOptions } from './run-writer.ts'
export { type SampleOrder, type SampleQuery, sampleOrders, selectSamples } from './sample-query.ts'
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
export { pictureOf } from './trackers/pictures.ts'
export { type TrackerName, trackerNames } from './trackers/tracker.ts'
