// What a run folder holds, line by line. events.jsonl and samples.jsonl say only what the seed decides, so that a run
// that was stopped and resumed has the same bytes as one that was not; clocks, hosts and speeds go to timing.jsonl.

export type Metrics = Readonly<Record<string, number>>

/** A figure with its 95 % interval. */
export interface Interval {
  mean: number
  low: number
  high: number
}

export interface StepEvent {
  t: 'step'
  step: number
  metrics: Metrics
}

export interface EvalEvent {
  t: 'eval'
  step: number
  /** 'before', 'after', or any other name of a round. */
  name: string
  /** How many records the figures are over. */
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
}

export interface StartEvent {
  t: 'start'
  step: number
  facts: Readonly<Record<string, unknown>>
}

export interface CheckpointEvent {
  t: 'checkpoint'
  step: number
  name: string
}

export interface StopEvent {
  t: 'stop'
  step: number
  reason: string
}

export type RunEvent = StepEvent | EvalEvent | WarningEvent | StartEvent | CheckpointEvent | StopEvent

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

/** One sampled completion, with all that is needed to judge it later. */
export interface Sample {
  step: number
  /** 'loop1', 'loop2', or another task's name. */
  loop: string
  /** The record. */
  id: string
  /** Index in the group. */
  k: number
  /** What the policy wrote. */
  text: string
  /** What the second model answered in words (loop 2: caption'). */
  answer?: string
  /** The record's own caption. */
  reference?: string
  /** The record's mask, and the mask that was made (loop 1: redrawn from the caption, loop 2: sampled). */
  given: MaskRle | null
  made: MaskRle | null
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
