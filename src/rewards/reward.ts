import type { RgbImage } from '../image/index.ts'
import type { Mask } from '../mask/index.ts'

/** How sure SAM2 is of a mask it drew, each from 0 to 1. */
export interface MaskConfidence {
  /** Its own estimate of the overlap with the object. */
  iou: number
  /** The probability that there is an object. */
  object: number
}

/** The record an answer is about, as its source has it. */
export interface RecordContext {
  category?: readonly string[]
  /** What the source says of the record besides image, mask, caption and category. */
  columns: Readonly<Record<string, unknown>>
  /** In a run it is there when a reward of the user's own is. */
  image?: RgbImage
}

/**
 * Everything a reward sees of one sample. Produced fields are named after their author: in loop 1 the policy writes
 * `caption` and the EMA copy draws `maskPrime`; in loop 2 the policy draws `mask` and the EMA copy writes `captionPrime`.
 * `null` means produced nothing (no [SEG], no caption of an empty mask): a true 0. Absent means not produced: an error.
 * A task may add fields for its own rewards.
 */
export interface Answer {
  /** Names the sample in errors. */
  id: string
  /** The record's caption. */
  reference: string
  /** The record's mask. */
  given?: Mask
  caption?: string | null
  maskPrime?: Mask | null
  mask?: Mask | null
  captionPrime?: string | null
  /** The policy's answer as decoded, markers included. */
  text?: string
  /** Of `mask` or `maskPrime`; null if there is no mask. */
  maskConfidence?: MaskConfidence | null
  record?: RecordContext
  /** The step of the run that asks, counted as in samples.jsonl. */
  step?: number
  /** Different texts among the answers of the group, as a share of them; known when a group is scored. */
  unique?: number
}

/** A score, or `null`: could not be scored. Never a silent 0. */
export type Score = number | null

interface RewardBase {
  readonly name: string
  /** Values outside are an error that names the sample. */
  readonly range: readonly [number, number]
  readonly doc: string
  /**
   * What a null does. 'row' (default): that sample has no reward, gets advantage 0, stays out of the group's mean.
   * 'group': the term failed for a reason outside the sample (a server), so the whole group loses it.
   */
  readonly nullMeans?: 'row' | 'group'
  /** Used when a group has lost every term. */
  readonly fallback?: Reward
}

/** A reward that scores one sample at a time. */
export interface SingleReward extends RewardBase {
  score(answer: Answer): Score | Promise<Score>
}

/** A reward that scores all samples of a group in one call. */
export interface BatchReward extends RewardBase {
  /** One value per answer, in order. The answers are one group: same record, same prompt. */
  scoreBatch(answers: readonly Answer[]): readonly Score[] | Promise<readonly Score[]>
}

/** A named score with a range: one sample at a time, or a group in one call. */
export type Reward = SingleReward | BatchReward

/** Types a reward and returns it unchanged. */
export function defineReward<R extends Reward>(reward: R): R {
  return reward
}

/** A reward with its share. */
export interface Term {
  readonly reward: Reward
  readonly weight: number
}
