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
  /** The step a resumed run goes on behind; undefined for a new one. */
  resumedAt?: number
}

/** A sample with its picture, made once for all trackers. */
export interface Picture {
  sample: Sample
  /** PNG with the outlines of the masks. */
  png: Uint8Array
  width: number
  height: number
  /** What was written, with the rewards. */
  caption: string
}

/** Nothing: it is done. 'waits': it is to be sent with something later. */
export type Told = void | 'waits' | Promise<void>

/**
 * A place beside the run folder where figures go. Everything may throw or reject: the run notes it and goes on. Numbers come
 * as they are logged, NaN included. `now` is milliseconds since 1970.
 */
export interface Tracker {
  step(step: number, metrics: Metrics, now: number): Told
  eval?(step: number, metrics: Readonly<Record<string, Interval>>, now: number): Told
  pictures?(step: number, pictures: readonly Picture[], now: number): Told
  /** `reason` of the run's stop; undefined where it broke. */
  close(reason: string | undefined, now: number): void | Promise<void>
}
