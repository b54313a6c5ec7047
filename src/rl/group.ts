// One record's samples of one task, scored: plain data, ready to be learned from, now or in a later pass.
import { type Advantages, groupAdvantages } from './advantages.ts'
import type { GrpoConfig } from './config.ts'
import { completionMasks } from './masks.ts'
import type { Item, Sample, Task } from './task.ts'

/** A term that counts in a total. */
export interface CountedTerm {
  name: string
  weight: number
  value: number | null
}

/** What the rewards say of one sample. */
export interface Scored {
  /** Weighted sum; null when the sample could not be scored. */
  total: number | null
  /** Each reward unweighted. */
  parts: Readonly<Record<string, number | null>>
  /** The terms the total is made of. */
  counted: readonly CountedTerm[]
  /** What else is known of the sample: logged, counts nothing. */
  metrics?: Readonly<Record<string, number>>
}

/** Which columns of a group's densities the loss uses. */
export interface Columns {
  /** [K * T], 0 or 1, row-major. */
  mask: Float32Array
  /** T, and how many of them are tokens; the rest are actions. */
  all: number
  tokens: number
  /** [K * T] 0 at words that were not sampled but decoded greedily: no policy gradient is theirs. Null: all were sampled. */
  sampled: Float32Array | null
}

export interface Group {
  readonly task: Task
  readonly item: Item
  readonly samples: readonly Sample[]
  readonly replies: readonly object[]
  scores: readonly Scored[]
  readonly columns: Columns
  advantages: Float64Array
  hasSignal: boolean
  /** [K * T] under the weights that sampled; only when the group is used more than once. */
  old: Float32Array | null
  /** [K * T] under the reference; only when beta is not 0. */
  reference: Float32Array | null
}

/** A group before it is scored and learned from. */
export function newGroup(
  { task, item, samples, replies = [] }: Pick<Group, 'task' | 'item' | 'samples'> & Partial<Pick<Group, 'replies'>>,
  rl: GrpoConfig,
): Group {
  const unscored = { scores: [], advantages: new Float64Array(0), hasSignal: false, old: null, reference: null }
  return { task, item, samples, replies, columns: columnsOf(task, samples, rl), ...unscored }
}

/** The one mask for counting and for the loss: tokens up to the end, then actions; nothing of a truncated row where the settings say so. */
export function columnsOf(
  task: Task,
  samples: readonly Sample[],
  { maskTruncatedCompletions }: Pick<GrpoConfig, 'maskTruncatedCompletions'>,
): Columns {
  const { columns: tokens, lossMask, truncated } = maskedTokens(samples, maskTruncatedCompletions)
  const actions = task.actions(samples)
  const all = tokens + (actions?.columns ?? 0)
  const mask = new Float32Array(samples.length * all)
  samples.forEach((_, k) => {
    mask.set(lossMask.subarray(k * tokens, (k + 1) * tokens), k * all)
    if (!actions || (maskTruncatedCompletions && truncated[k])) return
    mask.set(actions.counts.subarray(k * actions.columns, (k + 1) * actions.columns), k * all + tokens)
  })
  return { mask, all, tokens, sampled: sampledColumns(samples, tokens, all) }
}

function sampledColumns(samples: readonly Sample[], tokens: number, all: number): Float32Array | null {
  if (samples.every((s) => s.sampled !== false)) return null
  const out = new Float32Array(samples.length * all).fill(1)
  samples.forEach((s, k) => {
    if (s.sampled === false) out.fill(0, k * all, k * all + tokens)
  })
  return out
}

/** A sample ends where its ids end: the sampler has cut it at the end token or the stop text, and says whether it ended by itself. */
export function maskedTokens(samples: readonly Sample[], maskTruncated: boolean) {
  if (samples.every((s) => s.ids.length === 0)) return withoutTokens(samples.length)
  return completionMasks(
    samples.map((s) => s.ids),
    { eos: new Set(), pad: -1, maskTruncated, finished: samples.map((s) => s.finished) },
  )
}

/** Samples that are actions alone. */
function withoutTokens(rows: number) {
  const none = new Uint8Array(0)
  const truncated = new Array<boolean>(rows).fill(false)
  return {
    rows,
    columns: 0,
    completionMask: none,
    lossMask: none,
    truncated,
    lengths: truncated.map(() => 0),
    numItems: 0,
    metrics: {},
  }
}

/** Tokens that were decoded for a group. An answer decoded greedily is one for all of its rows. */
export function decodedTokens({ samples }: Pick<Group, 'samples'>): number {
  const shared = samples.find((s) => s.sampled === false)
  const own = samples.filter((s) => s.sampled !== false)
  return own.reduce((n, s) => n + s.ids.length, shared?.ids.length ?? 0)
}

export function columnSum({ mask }: Columns): number {
  return mask.reduce((a, b) => a + b, 0)
}

/** From the totals, or with normalize_then_sum from the terms: a term that a group lost is a column without values there. */
export function advantagesOf(rows: readonly Scored[], rl: GrpoConfig): Advantages {
  const totals = rows.map((r) => r.total)
  if (rl.multiObjectiveAggregation === 'sum_then_normalize') return groupAdvantages(totals, rl)
  const weights = new Map(rows.flatMap((r) => r.counted).map((t) => [t.name, t.weight]))
  const names = [...weights.keys()]
  const table = rows.map((r) => names.map((name) => r.counted.find((t) => t.name === name)?.value ?? null))
  return groupAdvantages(table, { ...rl, weights: [...weights.values()], names })
}
