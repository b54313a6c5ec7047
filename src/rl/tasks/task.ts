// What a loop is: how it prompts, what it samples, how the EMA copy answers, and which log-densities the loss sees.
// B records, K samples of each, T columns (tokens, and for a mask action one more).
import type { RandomStream } from '../../core/index.ts'
import type { Example } from '../../data/index.ts'
import type { Mask } from '../../mask/index.ts'
import type { Features } from '../../models/index.ts'
import type { Answer } from '../../rewards/index.ts'
import type { Tensor } from '../../tensor/index.ts'
import type { Learner } from '../learner.ts'
import type { RunConfig } from '../run-config.ts'

/** A record in work: the example, its frozen features (one encoding per image and step) and its key for random numbers. */
export interface WorkItem {
  example: Example
  features: Features
}

/** A sampled mask action: the numbers that were executed, and the mask output they belong to. */
export interface MaskAction {
  value: Float32Array
  choice: number
}

/** One sample: plain data, nothing here can be differentiated. */
export interface Rollout {
  ids: Int32Array
  text: string
  finished: boolean
  /** Of the sampler, for diagnosis. */
  logps: Float32Array
  action: MaskAction | null
  /** What the EMA copy is asked about: a caption, or a mask (null: none was made). */
  caption: string | null
  mask: Mask | null
}

export interface Answered {
  answer: Answer
  /** For the samples file. */
  madeMask: Mask | null
  answerText: string | null
}

export interface Densities {
  logps: Tensor // [K, T], with gradient when recorded
  entropies: Tensor | null // [K, T]
}

export interface TaskContext {
  learner: Pick<Learner, 'loaded'>
  config: RunConfig
  /** Scale of the mask action, in the units of what it perturbs. */
  actionScale: number
}

/** The random numbers of a sample: those that choose words, and those that disturb a mask. */
export type Streams = (item: WorkItem, k: number, use: 'text' | 'action') => RandomStream

export interface Task {
  readonly name: 'loop1' | 'loop2'
  /** No gradient is recorded; only plain data leaves. */
  sample(context: TaskContext, items: readonly WorkItem[], random: Streams): Rollout[][]
  /** The EMA copy's answers, greedy and without noise. Runs inside learner.asEma. */
  answer(context: TaskContext, items: readonly WorkItem[], groups: readonly (readonly Rollout[])[]): Answered[][]
  /** Log-densities of the same samples under the weights in place. */
  densities(context: TaskContext, item: WorkItem, group: readonly Rollout[]): Densities
  /** 1 where a column of the densities enters the loss. */
  mask(context: TaskContext, group: readonly Rollout[]): Float32Array
  /** A differentiable term beside the policy gradient; null when the settings ask for none. */
  extraLoss(context: TaskContext, item: WorkItem, group: readonly Rollout[]): Tensor | null
}
