// The interface every task implements. A task says how a record becomes samples, how samples are answered, and which log-densities the
// loss sees. B records, K samples of each, T columns (tokens, then the columns of other actions).
import { stream } from '../core/index.ts'
import type { Tensor } from '../tensor/index.ts'
import type { Scored } from './group.ts'

/** Plain data that travels as JSON. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json | undefined }

/** A record in work. The method knows its name; the rest is the task's business. */
export interface Item {
  readonly id: string
}

/** One sample: plain data, nothing here can be differentiated. */
export interface Sample {
  /** Tokens, the end included. */
  readonly ids: Int32Array
  readonly text: string
  /** Ended by itself, not by the length limit. */
  readonly finished: boolean
  /** Of each token, as the sampler saw it. */
  readonly logps: Float32Array
  /** Of the distribution each token was drawn from, where that is not the policy's own; kept when the settings correct for it. */
  readonly samplerLogps?: Float32Array
  /** False: the words were decoded greedily, and only the other actions are random. */
  readonly sampled?: boolean
}

/** What decides the random numbers of a sampling phase, besides the record and k. */
export interface Draw {
  readonly seed: number
  readonly step: number
  /** How often a record was sampled in this step before. */
  readonly again?: ReadonlyMap<string, number>
}

/** The random numbers of sample k of a record: they depend on nothing else that is in work. */
export function sampleStream({ seed, step, again }: Draw, use: number, id: string, k: number, ...more: string[]) {
  const times = again?.get(id) ?? 0
  return stream(seed, use, step, id, k, ...more, ...(times > 0 ? [`again ${times}`] : []))
}

/** Log-probabilities of the samples of one record under the current weights. */
export interface Densities {
  logps: Tensor // [K, T], with gradient when recorded
  entropies: Tensor | null // [K, T]
}

/** Groups of one task that are scored together. */
export interface TaskGroups<T = Task, I extends Item = Item, S extends Sample = Sample> {
  readonly task: T
  readonly items: readonly I[]
  readonly groups: readonly (readonly S[])[]
}

/** One pass for the densities of several tasks: those that name the same object in `with`. What is prepared serves any weights. */
export interface JointPass {
  readonly with: object
  prepare(parts: readonly TaskGroups[]): () => Densities[][]
}

/** Actions that are not tokens (a drawn mask): columns after the tokens of each row. */
export interface ActionColumns {
  readonly columns: number
  /** [K * columns], 1 where the row has the action. */
  readonly counts: Float32Array
}

/** One part of a sample as shown to a person: its kind, its author, and a label if the author is not enough. */
export interface Shown {
  kind: 'text' | 'mask' | 'points'
  by: 'record' | 'policy' | 'ema' | 'judge'
  value: Json
  name?: string
}

/** One loop of a run: how to prompt, sample, answer and score. `defineTask` fills in the defaults. */
export interface Task<I extends Item = Item, S extends Sample = Sample, R extends object = object> {
  /** Prefix of its metrics, key in checkpoints and settings. */
  readonly name: string
  /** For people: `mask -> caption -> mask`. */
  readonly title: string
  /** Of its loss in the sum; above 0. */
  readonly weight: number
  /** Weight of its KL term; 0 skips the reference pass. */
  readonly beta: number
  /** Whether `open` needs records. */
  readonly opens: boolean
  /** What it measures before the first step (the scale of its noise), kept in checkpoints; null: nothing. */
  open(items: readonly I[]): Json
  /** Puts back what `open` gave. */
  reopen(state: Json): void
  /** Says what `open` found, for the start of a run; null: nothing to say. */
  describe(): string | null
  /** K samples of each record. No gradient is recorded; only plain data leaves. */
  sample(items: readonly I[], draw: Draw): S[][]
  /** Replies of the EMA copy, whose weights are in place, greedy and without noise. */
  answer(items: readonly I[], groups: readonly (readonly S[])[]): R[][]
  /** Log-densities of the same samples under the weights in place, for each record; one pass over all of them. */
  densities(items: readonly I[], groups: readonly (readonly S[])[]): Densities[]
  /** Absent or null: `densities` is the only pass. */
  readonly joint?: JointPass | null
  /** Columns besides the tokens; null: none. */
  actions(group: readonly S[]): ActionColumns | null
  /** A differentiable term beside the policy gradient for each record that has one; absent or null: none. */
  extraLoss?(items: readonly I[], groups: readonly (readonly S[])[]): readonly (Tensor | null)[] | null
  /** Hand-made, finished samples with an action; `doctor` uses them instead of sampling. */
  probe(item: I): S[]
  /** Remarks about what the model does with a record as it is now, for the doctor. */
  examine?(item: I): string[]
  /**
   * Metrics of a step beside the common ones, under their whole names, from the scores of all processes. A reply may bring `metrics`:
   * numbers by name that travel with its scores; their means are logged under the task's name.
   */
  metrics?(groups: readonly { scores: readonly Scored[] }[], loss: number): Record<string, number>
  /** What a person sees of a sample, beside its text. */
  shown(item: I, sample: S, reply: R | undefined): Shown[]
  store(sample: S): Json
  restore(stored: Json): S
}
