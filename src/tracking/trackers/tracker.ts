import type { Interval, Metrics, Sample } from '../events.ts'

/** Names that users know from other trainers. */
export const trackerNames = ['tensorboard', 'wandb', 'trackio', 'mlflow'] as const
export type TrackerName = (typeof trackerNames)[number]

export interface TrackedRun {
  /** The run folder. */
  dir: string
  /** What people call the run: the folder's name. */
  name: string
  /** Settings by their full name, as text, numbers or truth values. */
  settings: Readonly<Record<string, string | number | boolean>>
  /** The step after which a resumed run continues; undefined for a new run. */
  resumedAt?: number
}

/** A sample with its picture, rendered once for all trackers. */
export interface Picture {
  sample: Sample
  /** PNG with the outlines of the masks. */
  png: Uint8Array
  width: number
  height: number
  /** What was written, with the rewards. */
  caption: string
}

/** Metrics of an evaluation as scalars: the means, under `eval/`. */
export const meansOf = (metrics: Readonly<Record<string, Interval>>): Metrics =>
  Object.fromEntries(Object.entries(metrics).map(([key, { mean }]) => [`eval/${key}`, mean]))

/** Nothing: it is done. 'waits': it is to be sent with something later. */
export type Delivery = void | 'waits' | Promise<void>

/**
 * A destination for metrics besides the run folder. Every method may throw or reject: the run logs it and continues. Numbers come
 * as they are logged, NaN included. `now` is milliseconds since 1970.
 */
export interface Tracker {
  step(step: number, metrics: Metrics, now: number): Delivery
  eval?(step: number, metrics: Readonly<Record<string, Interval>>, now: number): Delivery
  pictures?(step: number, pictures: readonly Picture[], now: number): Delivery
  /** `reason` of the run's stop; undefined where it broke. */
  close(reason: string | undefined, now: number): void | Promise<void>
}
