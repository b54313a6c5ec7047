// What a step works with: weights in their roles, settings, tasks, scores, and the records of a batch.
import type { World } from '../distributed/index.ts'
import type { AdamW, GradientNorms } from '../optim/index.ts'
import type { Tensor } from '../tensor/index.ts'
import type { GrpoConfig } from './config.ts'
import type { EntropyState } from './entropy.ts'
import type { Group, Scored } from './group.ts'
import type { RecordCosts } from './share.ts'
import type { Draw, Item, Task } from './task.ts'

/** Roles whose weights are copies. */
export type CopiedRole = 'ema' | 'reference'

/** The weights in their roles: the policy trains, the EMA copy answers, the reference holds the policy back. */
export interface Roles {
  readonly optim: AdamW
  params(): ReadonlyMap<string, Tensor>
  /** Runs `fn` with the EMA copy's (the reference's) weights in place, without gradient. */
  asEma<R>(fn: () => R): R
  asReference<R>(fn: () => R): R
  /** Runs `fn` with the weights in place as sampling reads them, without gradient. */
  forSampling<R>(fn: () => R): R
  /** Runs `fn`, in which no role's weights change: what sampling has read of an image serves the same role again. */
  whileSampling<R>(fn: () => R): R
  /** After an update: the EMA copy, and a reference that moves, take their small step. */
  follow(): void
  /** Runs `fn`, which uses the role, while its copy is whole, if each process keeps a part of it. All processes together. */
  whileWhole<R>(role: CopiedRole, world: World, fn: () => R | Promise<R>): Promise<R>
  /** Takes the weights that other processes have updated; nothing where each updates all. */
  share(world: World): Promise<void>
  /** Gradient norm of each trainable group, where those of all tensors are given. */
  gradNorms(norms: GradientNorms): Record<string, number>
}

export interface StepConfig {
  readonly rl: GrpoConfig
  /** Gradients are scaled to this norm at most; 0: never. */
  readonly maxGradNorm: number
  readonly learningRate: number
  /** On CUDA backward sums in a fixed order: the same seed gives the same bytes. */
  readonly fixedOrder: boolean
  /** Tasks are weighed by the inverse of their running gradient norms, which are measured. */
  readonly adaptiveLoops: boolean
  /** Rewards permuted inside each group: a control that carries no signal. */
  readonly shuffleRewards: boolean
}

export interface Run {
  readonly config: StepConfig
  readonly tasks: readonly Task[]
  /** Names of tasks that a judge scores: they are sampled first and learned from last. */
  readonly judged: ReadonlySet<string>
  readonly roles: Roles
  readonly world: World
  /** Decides which process works on which record. */
  readonly costs: RecordCosts
  /** Runs `fn` while what the records need (their features) is in memory. */
  inWork<R>(items: readonly Item[], fn: () => R): R
  /** One promise a group: a judge answers over the network while the next task is sampled. */
  score(task: string, replies: readonly (readonly object[])[]): Promise<readonly Scored[]>[]
  /** Called while the device computes the gradients of these groups: work of the host that needs none of them. */
  readonly meanwhile?: (groups: readonly Group[]) => void
  /** Weights of the tasks besides their own; 1 unless adaptive. */
  balance: Record<string, number>
  /** Coefficient of the entropy bonus, and the entropy that decides on it. */
  entropy: EntropyState
}

/** What a step learns from: groups sampled before, or records to sample now. Records of one piece are in memory together. */
export interface Batch {
  readonly draw: Draw
  readonly pieces: readonly (readonly Item[])[]
  readonly groups?: readonly Group[]
  /** Settles when the groups of a task have their scores. Absent: they have. */
  ready?(task: Task): Promise<void>
  /**
   * What dapo, cispo and vespo divide the sum over a group's tokens by: the tokens of its generation batch and task, rescaled to
   * this step, as TRL has it. Absent: the tokens of the step.
   */
  readonly numItems?: ReadonlyMap<Group, number>
}
