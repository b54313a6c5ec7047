// Lines of the files of a run folder. events.jsonl and samples.jsonl depend only on the seed: a resumed run writes the same bytes
// as one that was never stopped. Clocks, hosts and speeds go to timing.jsonl.

/** Metric name -> value. */
export type Metrics = Readonly<Record<string, number>>

/** A metric with its 95 % interval. */
export interface Interval {
  mean: number
  low: number
  high: number
}

/** Metrics of one training step. */
export interface StepEvent {
  t: 'step'
  step: number
  metrics: Metrics
}

/** An evaluation: metrics with intervals. */
export interface EvalEvent {
  t: 'eval'
  step: number
  /** 'before', 'after', or any other name of a round. */
  name: string
  /** Number of records in the metrics. */
  records: number
  metrics: Readonly<Record<string, Interval>>
}

export interface WarningEvent {
  t: 'warning'
  step: number
  /** What is counted together: 'bad-record', 'unscored', 'zero-spread', ... */
  kind: string
  text: string
  /** How many things this line stands for. */
  count: number
  /** Samples to look at. */
  samples?: readonly SampleRef[]
}

/** Where a sample is in its run. */
export interface SampleRef {
  step: number
  /** The task's name. */
  loop: string
  /** The record. */
  id: string
  /** Index in the group. */
  k: number
}

/** One line of events.jsonl. */
export type RunEvent =
  | StepEvent
  | EvalEvent
  | WarningEvent
  | { t: 'start'; step: number; facts: Readonly<Record<string, unknown>> }
  | { t: 'checkpoint'; step: number; name: string }
  | { t: 'stop'; step: number; reason: string }

/** One line of timing.jsonl. `time` is milliseconds since 1970. A step that was redone after a resume occurs twice. */
export interface TimingLine {
  t: 'start' | 'resume' | 'step' | 'stop'
  step: number
  time: number
  metrics?: Metrics
}

/** COCO run-length encoding; size is [height, width], runs are column-major. */
export interface MaskRle {
  size: readonly [number, number]
  counts: string
}

/** The author of what is shown: the record has it, the policy sampled it, its EMA copy or the judge answered it. */
export type Author = 'record' | 'policy' | 'ema' | 'judge'

/** A point on the image, in pixels from its left upper corner; `positive`: it lies on what is meant. */
export interface ShownPoint {
  x: number
  y: number
  positive: boolean
}

/** One thing to look at when a sample is judged by eye. `name` says what it is where the author alone does not. */
export type Shown =
  | { kind: 'text'; by: Author; text: string; name?: string }
  | { kind: 'mask'; by: Author; mask: MaskRle | null; name?: string } // null: none was produced
  | { kind: 'points'; by: Author; size: readonly [number, number]; points: readonly ShownPoint[]; name?: string }

/** The same in the form of tasks; readers return the form above. */
export interface TaskShown {
  kind: Shown['kind']
  by: Author
  value: unknown
  name?: string
}

/** One sampled completion, with all that is needed to judge it later. */
export interface Sample extends SampleRef {
  /** What there is to see, in the order of the method: what the record holds, what was sampled, what was answered. */
  shown?: readonly (Shown | TaskShown)[]
  /** The form before `shown`: what the policy wrote. */
  text?: string
  /** The text that the second model answered. */
  answer?: string
  /** The record's own caption. */
  reference?: string
  /** The record's mask, and the produced mask. */
  given?: MaskRle | null
  made?: MaskRle | null
  /** Its author; absent in older files. */
  madeBy?: Author
  /** Each part unweighted; null where it could not be scored. */
  rewards: Readonly<Record<string, number | null>>
  total: number | null
  advantage: number
  /** Sum of the log-probs at sampling time. */
  logp: number
  /** Tokens, the end token included. */
  length: number
  /** Cut at the longest allowed length. */
  truncated?: boolean
  /** File name under images/, where the image was kept. */
  image?: string
}

/** A sample that its process has encoded. */
export interface SampleLine extends Pick<Sample, 'step' | 'loop'> {
  line: Uint8Array
}

/** A sample as a reader gives it back: `shown` is there, whichever form the file has. */
export interface ReadSample extends Sample {
  shown: readonly Shown[]
}

/** A task of the run as its `start` event names it: `name` is the metrics' prefix, `title` is for people. */
export interface TaskName {
  name: string
  title: string
}
