import { assert, counted, stream } from '../core/index.ts'
import type { Interval } from './events.ts'

/** Options of the bootstrap. */
export interface BootstrapOptions {
  seed: number
  resamples?: number
}

/** Mean with the 95 % percentile interval of the bootstrap. The seed alone decides the resamples. No values: NaN. One value: no interval, low and high are NaN. */
export function bootstrapInterval(values: readonly number[], options: BootstrapOptions): Interval {
  return bootstrapRatioInterval(
    values,
    values.map(() => 1),
    options,
  )
}

/** Sum of numerators over sum of denominators (cumulative IoU), resampled by record. */
export function bootstrapRatioInterval(
  numerators: readonly number[],
  denominators: readonly number[],
  { seed, resamples = 2000 }: BootstrapOptions,
): Interval {
  const n = numerators.length
  assert(denominators.length === n, 'one denominator for each numerator')
  if (n === 0) return { mean: Number.NaN, low: Number.NaN, high: Number.NaN }
  const sum = (x: readonly number[]) => x.reduce((a, b) => a + b, 0)
  const mean = sum(numerators) / sum(denominators)
  if (n === 1) return { mean, low: Number.NaN, high: Number.NaN } // its resamples are all the same
  const random = stream(seed, 'bootstrap')
  const ratios = new Float64Array(resamples)
  for (let r = 0; r < resamples; r++) {
    let above = 0
    let below = 0
    for (let i = 0; i < n; i++) {
      const at = Math.floor((random.wordAt(r * n + i) / 4294967296) * n)
      above += numerators[at]!
      below += denominators[at]!
    }
    ratios[r] = above / below
  }
  const sorted = ratios.filter((ratio) => !Number.isNaN(ratio)).sort() // without resamples of zeros alone
  return { mean, low: quantile(sorted, 0.025), high: quantile(sorted, 0.975) }
}

/** Sums of one unit that is resampled, a record or an image; a metric is the ratio of the sums over all of them. */
export interface Sums {
  above: number
  below: number
}

/** A metric of two models on the same units. */
export interface RatioChange {
  before: number
  after: number
  /** After minus before, with its 95 % interval. */
  change: Interval
}

/** Sums of the same units under two models; `guard` is added to the denominator. */
export interface PairedSums {
  before: readonly Sums[]
  after: readonly Sums[]
  guard?: number
}

/** The change of one metric in a resample. */
function changeIn({ before, after, guard = 0 }: PairedSums): (picked: Uint32Array) => number {
  const columns = [before, after].flatMap((side) => [side.map((s) => s.above), side.map((s) => s.below)])
  const [above0, below0, above1, below1] = columns.map((column) => Float64Array.from(column))
  return (picked) => {
    let [a0, b0, a1, b1] = [0, guard, 0, guard]
    for (let i = 0; i < picked.length; i++) {
      const at = picked[i]!
      a0 += above0![at]!
      b0 += below0![at]!
      a1 += above1![at]!
      b1 += below1![at]!
    }
    return a1 / b1 - a0 / b0
  }
}

const ratioOf = (side: readonly Sums[], guard = 0) => {
  const [above, below] = side.reduce(([a, b], s) => [a + s.above, b + s.below], [0, guard])
  return above! / below!
}

/**
 * The change of each metric with its 95 % percentile interval. Both models, and all metrics, are resampled together; resamples in which
 * a side has no value are left out.
 */
export function pairedBootstrap(
  metrics: readonly PairedSums[],
  { seed, resamples = 2000 }: BootstrapOptions,
): RatioChange[] {
  const n = metrics[0]?.before.length ?? 0
  assert(
    metrics.every(({ before, after }) => before.length === n && after.length === n),
    'the same units on both sides',
  )
  const random = stream(seed, 'paired bootstrap')
  const picked = new Uint32Array(n)
  const changes = metrics.map((sums) => ({ of: changeIn(sums), values: new Float64Array(n > 1 ? resamples : 0) }))
  for (let r = 0; r < resamples && n > 1; r++) {
    for (let i = 0; i < n; i++) picked[i] = Math.floor((random.wordAt(r * n + i) / 4294967296) * n)
    for (const { of, values } of changes) values[r] = of(picked)
  }
  return metrics.map(({ before, after, guard }, m) => {
    const sorted = changes[m]!.values.filter((value) => !Number.isNaN(value)).sort()
    const [was, is] = [ratioOf(before, guard), ratioOf(after, guard)]
    const change = { mean: is - was, low: quantile(sorted, 0.025), high: quantile(sorted, 0.975) }
    return { before: was, after: is, change }
  })
}

/** Of fewer records an interval says little about others. */
export const fewRecords = 20

/** What a reader must know about the intervals of so few records; null: nothing. */
export function smallSampleNote(records: number): string | null {
  if (records >= fewRecords) return null
  if (records === 1) return 'one record: no interval'
  return `${counted(records, 'record')}: an interval of fewer than ${fewRecords} means little`
}

/** Where the second interval is if the two have no value in common; a missing interval is never apart. */
export function apartFrom(before: Interval, after: Interval): 'higher' | 'lower' | null {
  if (after.low > before.high) return 'higher'
  return after.high < before.low ? 'lower' : null
}

/** Linear interpolation between the order statistics of a sorted array. */
export function quantile(sorted: ArrayLike<number>, q: number): number {
  const at = q * (sorted.length - 1)
  const low = Math.floor(at)
  const a = sorted[low] ?? Number.NaN
  return a + (at - low) * ((sorted[low + 1] ?? a) - a)
}
