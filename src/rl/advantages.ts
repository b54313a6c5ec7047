// Group-relative advantages. Rows are prompt-major: row = prompt * K + k. Plain float64 numbers, no tensors.
import { Mismatch, refuseAt } from '../core/index.ts'
import type { GrpoConfig } from './config.ts'

/** A reward; null where it could not be scored. */
export type Score = number | null

export type AdvantageOptions = Pick<
  GrpoConfig,
  'numGenerations' | 'scaleRewards' | 'advantageEps' | 'ddof' | 'multiObjectiveAggregation'
> & {
  /** One weight per reward function; ones if absent. */
  weights?: readonly number[] | null
  /** Names of the reward functions, for the metrics. */
  names?: readonly string[]
}

export interface Advantages {
  /** [N]; 0 for rows that were not scored and in groups without spread. */
  advantages: Float64Array
  /** [N] weighted sums; NaN for a row that no function scored. */
  rewards: Float64Array
  /** [N / K]; NaN where a group has too few scored rows. */
  groupMean: Float64Array
  groupStd: Float64Array
  /** Of all scored rows (of the decoupled rewards for normalize_then_sum). */
  batchStd: number
  /** [N], normalize_then_sum only. */
  decoupled: Float64Array | null
  /** Whether scored rows of the group differ. */
  hasSignal: boolean[]
  /** Rows that no function scored. */
  unscored: number
  metrics: Record<string, number>
}

interface Moments {
  mean: number
  std: number
  count: number
}

/** Mean and standard deviation of the numbers that are there. Equal numbers have exactly that mean and deviation 0. */
function moments(values: readonly number[], ddof: number): Moments {
  const there = values.filter((v) => !Number.isNaN(v))
  const count = there.length
  if (count === 0) return { mean: Number.NaN, std: Number.NaN, count }
  if (there.every((v) => v === there[0])) return { mean: there[0]!, std: count > ddof ? 0 : Number.NaN, count }
  const mean = sum(there) / count
  return { mean, std: Math.sqrt(sum(there.map((v) => (v - mean) ** 2)) / (count - ddof)), count }
}

function sum(values: readonly number[]): number {
  let total = 0
  for (const v of values) total += v
  return total
}

/** `rewards`: one row per completion, one column per function; or one total per completion. */
export function groupAdvantages(
  rewards: readonly Score[] | readonly (readonly Score[])[],
  options: AdvantageOptions,
): Advantages {
  const table = tableOf(rewards, options)
  const weights = weightsOf(options, table[0]?.length ?? 1)
  const totals = table.map((row) => weightedSum(row, weights))
  const groups = groupsOf(totals, options.numGenerations)
  const stats = groups.map((g) => groupMoments(g, options.ddof))
  const decoupled =
    options.multiObjectiveAggregation === 'normalize_then_sum' ? decouple(table, weights, options) : null
  const batch = moments(decoupled ?? totals, options.ddof)
  const advantages = decoupled
    ? decoupled.map((v) => (v - batch.mean) / (batch.std + options.advantageEps))
    : centre(totals, stats, batch.std, options)
  return {
    advantages: Float64Array.from(advantages, (a) => (Number.isNaN(a) ? 0 : a)),
    rewards: Float64Array.from(totals),
    groupMean: Float64Array.from(stats, (s) => s.mean),
    groupStd: Float64Array.from(stats, (s) => s.std),
    batchStd: batch.std,
    decoupled: decoupled ? Float64Array.from(decoupled) : null,
    hasSignal: groups.map(differs),
    unscored: totals.filter(Number.isNaN).length,
    metrics: rewardMetrics(totals, namedColumns(table, options.names), options),
  }
}

function tableOf(rewards: readonly Score[] | readonly (readonly Score[])[], options: AdvantageOptions): number[][] {
  const { numGenerations: k } = options
  if (rewards.length === 0 || rewards.length % k !== 0)
    return refuseAt('advantages')('rewards', `whole groups of ${k} rows`, rewards.length)
  const width = Array.isArray(rewards[0]) ? (rewards[0] as readonly Score[]).length : 1
  return rewards.map((given, row) => {
    const list = Array.isArray(given) ? (given as readonly Score[]) : [given as Score]
    if (list.length !== width)
      throw new Mismatch({ where: 'advantages', field: `row ${row}`, expected: `${width} rewards`, got: list.length })
    return list.map((value) => finiteOrNaN(value, row))
  })
}

function finiteOrNaN(value: Score, row: number): number {
  if (value === null || Number.isNaN(value)) return Number.NaN
  if (Number.isFinite(value)) return value
  throw new Mismatch({ where: 'advantages', field: `row ${row}`, expected: 'a finite reward or null', got: `${value}` })
}

function weightsOf(options: AdvantageOptions, width: number): readonly number[] {
  const weights = options.weights ?? new Array<number>(width).fill(1)
  if (weights.length === width) return weights
  return refuseAt('advantages')('weights', `${width}, one per reward`, weights.length)
}

/** Over the functions that scored the row; NaN if none did. */
function weightedSum(row: readonly number[], weights: readonly number[]): number {
  if (row.every(Number.isNaN)) return Number.NaN
  return sum(row.map((v, f) => (Number.isNaN(v) ? 0 : v * weights[f]!)))
}

function groupsOf(values: readonly number[], k: number): number[][] {
  return Array.from({ length: values.length / k }, (_, g) => values.slice(g * k, (g + 1) * k))
}

/** One generation per prompt (evaluation): the deviation is taken as 0. */
function groupMoments(group: readonly number[], ddof: number): Moments {
  const m = moments(group, ddof)
  return group.length === 1 && m.count === 1 ? { ...m, std: 0 } : m
}

function centre(
  totals: readonly number[],
  stats: readonly Moments[],
  batchStd: number,
  options: AdvantageOptions,
): number[] {
  const { numGenerations: k, scaleRewards, advantageEps } = options
  return totals.map((r, row) => {
    const { mean, std } = stats[Math.floor(row / k)]!
    if (scaleRewards === 'none') return r - mean
    return (r - mean) / ((scaleRewards === 'group' ? std : batchStd) + advantageEps)
  })
}

/** GDPO: every function normalised inside its groups, then summed. */
function decouple(table: readonly number[][], weights: readonly number[], options: AdvantageOptions): number[] {
  const normalized = weights.map((_, f) => {
    const column = table.map((row) => row[f]!)
    const stats = groupsOf(column, options.numGenerations).map((g) => groupMoments(g, options.ddof))
    return column.map((v, row) => {
      const { mean, std } = stats[Math.floor(row / options.numGenerations)]!
      return (v - mean) / (std + options.advantageEps)
    })
  })
  return table.map((_, row) =>
    weightedSum(
      normalized.map((column) => column[row]!),
      weights,
    ),
  )
}

function differs(group: readonly number[]): boolean {
  const there = group.filter((v) => !Number.isNaN(v))
  return there.some((v) => v !== there[0])
}

function namedColumns(table: readonly number[][], names: readonly string[] = []): Map<string, number[]> {
  return new Map(table[0]!.map((_, f) => [names[f] ?? String(f), table.map((row) => row[f]!)]))
}

/**
 * TRL's names, over all rows of complete groups; NaN: not scored. `reward_group_std` is the mean of the groups' deviations, as R1-V
 * logs it. `columns`: the rewards by name, unweighted.
 */
export function rewardMetrics(
  totals: readonly number[],
  columns: ReadonlyMap<string, readonly number[]>,
  { numGenerations, ddof }: Pick<AdvantageOptions, 'numGenerations' | 'ddof'>,
): Record<string, number> {
  const all = moments(totals, 1)
  const groupStds = groupsOf(totals, numGenerations).map((g) => groupMoments(g, ddof).std)
  const known = groupStds.filter((s) => !Number.isNaN(s))
  const out: Record<string, number> = {
    reward: all.mean,
    reward_std: all.std,
    reward_group_std: known.length > 0 ? sum(known) / known.length : Number.NaN,
    frac_reward_zero_std: groupStds.filter((s) => Math.abs(s) <= 1e-8).length / groupStds.length,
    unscored: totals.filter(Number.isNaN).length,
  }
  for (const [name, values] of columns) {
    const { mean, std } = moments(values, 1)
    out[`rewards/${name}/mean`] = mean
    out[`rewards/${name}/std`] = std
  }
  return out
}
