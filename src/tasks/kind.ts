// A kind of task: what a run can train. It adds settings, builds the tasks of a run, says what is rewarded and how a model is
// evaluated. Every kind is one folder of this room and one line in its index.
import type { Example, RecordRules } from '../data/index.ts'
import type { World } from '../distributed/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Mask } from '../mask/index.ts'
import type { Family } from '../models/index.ts'
import type { OpenTask, RewardsConfig } from '../rewards/index.ts'
import type { GrpoConfig, Item, Shown, Task } from '../rl/index.ts'
import type { Interval } from '../tracking/index.ts'

/** A record in work: the example and its frozen features, encoded once for a whole step. */
export interface WorkItem extends Item {
  readonly example: Example
  readonly features: object
}

/** What every kind finds in the settings of a run, whatever its own settings are. */
export interface CommonSettings {
  readonly seed: number
  readonly rl: GrpoConfig
  readonly checkpointing: boolean
  readonly featureCache?: string | null
  readonly train: readonly string[]
  readonly rewards: RewardsConfig
}

/** Rewards of each task by name, and what a user should know about them. */
export interface TaskRewardsPlan {
  tasks: Record<string, OpenTask>
  notices: string[]
}

/** Scores of one held-out record: its id and numbers. */
export interface RecordScore {
  readonly id: string
  /** What a person sees of the answer. */
  readonly shown?: readonly Shown[]
}

/** What an evaluator says of a record: over many records the sums are divided. */
export type RecordRatios = ReturnType<NonNullable<Evaluator['ratios']>>

/** The same numbers before and after: greedy, no noise. */
export interface Evaluator<S extends RecordScore = RecordScore> {
  /** Scores of records under the weights in place. */
  score(items: readonly WorkItem[]): S[]
  /** Metric name -> mean and interval. */
  summary(scores: readonly S[], seed: number): Record<string, Interval>
  /** Metrics of a record as [numerator, denominator], null if it is not part of one; absent: the numbers of its score. */
  ratios?(score: S): Readonly<Record<string, readonly [number, number] | null>>
  /** Records of one unit, such as an image, are resampled together; absent: each is one. */
  unitOf?(score: S): string
  /** The metric that orders records by their change. */
  readonly main?: string
}

/** Decides which records are worth training on. Each is checked once, in stored order, before the first step. */
export interface RecordChooser {
  /** Files and settings that the numbers depend on, beside the records. */
  readonly files: readonly string[]
  readonly settings: string
  /** Numbers of a record that decide; of every record as many. */
  look(example: Example): readonly number[]
  /** Positions of the kept records, and a sentence about the others. Null: could not be read; the loader counts it. */
  choose(numbers: readonly (readonly number[] | null)[]): { kept: readonly number[]; summary: string }
}

/** Position of a batch of supervised records in its run. */
export interface BatchPosition {
  readonly seed: number
  readonly step: number
  readonly micro: number
  /** Of the batch in the step. */
  readonly share: number
  readonly world: World
}

/** What a kind teaches by examples. */
export interface SupervisedBatches {
  /** Short names of its metrics, for the status line, and their names in the log; one is `loss`. */
  readonly metrics: Readonly<Record<string, string>>
  /** Adds the gradient of this process's records of a batch, and gives its share of the metrics by their short names. */
  learn(batch: readonly Example[], place: BatchPosition): Promise<Record<string, number>>
}

export interface LessonOptions {
  /** Every weight learns, encoders included. */
  everything: boolean
  /** Weight of a mask loss beside the cross-entropy. */
  maskWeight: number
  /** Tiles of an image at most, for families that cut it; null: the family's own limit. */
  maxTiles: number | null
}

/** The sentences of one image in a published benchmark. */
export interface ImageSentences {
  readonly image: RgbImage
  readonly sentences: readonly string[]
  /** What a sentence means, for tasks that are given a prompt of the object. */
  target(sentence: number): Mask
}

export interface SentenceAnswer {
  text: string
  /** Null: no mask. */
  mask: Mask | null
}

/** Answers in the order of images and sentences. */
export type AnswerSentences = (images: readonly ImageSentences[]) => SentenceAnswer[][]

/** What `--task` names: settings checks, rewards, the tasks of a run and their evaluation. */
export interface TaskKind<C extends CommonSettings = CommonSettings> {
  readonly name: string
  readonly doc: string
  /** Its tasks read the images themselves: a run makes no features for them. */
  readonly readsImages?: true
  /** Defaults of common settings that are its own. */
  readonly defaults?: Readonly<Record<string, unknown>>
  /** Common settings that it does not use, as paths or groups of paths, and why: they are rejected. */
  readonly unused?: Readonly<Record<string, string>>
  /** Settings of tasks, sampling and rewards that these commands read, as paths or groups; absent: any. */
  readonly reads?: Readonly<Record<'eval' | 'sft' | 'plan', readonly string[]>> & { benchmark?: readonly string[] }
  /** Its own settings with presets applied, from all settings; `input`: as the user wrote them, with the defaults above. */
  resolve?(config: C, input: Readonly<Record<string, unknown>>): object
  /** Whether one of its tasks has a KL term whatever `rl.beta` says. */
  hasOwnKl?(config: C): boolean
  /** What its records may look like; absent: the common rules. */
  recordRules?(config: C): RecordRules
  /** Absent or null: every record is trained on. */
  chooser?(family: Family, config: C): RecordChooser | null
  /** Refuses settings that cannot work, with the reason. */
  check(config: C): void
  /** Rewards are decided once, before the first step. */
  rewards(config: C): TaskRewardsPlan
  /** The tasks of a run, those with a weight; a family that cannot do them is refused by name. */
  build(family: Family, config: C): Task[]
  evaluator(family: Family, config: C): Evaluator
  /** Masks for the sentences of published benchmarks; absent: a model answers them that draws masks by itself. */
  answers?(family: Family, config: C, maxRows: number): AnswerSentences
  /** Frees what the tasks, the chooser and the evaluator opened beside a family. */
  close?(family: Family): void
  /** Supervised learning and a description of its goal; absent: the kind has none. */
  lessons?: {
    goal(config: C, options: LessonOptions): string
    open(family: Family, config: C, options: LessonOptions): SupervisedBatches
  }
}
