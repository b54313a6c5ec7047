import { assert, stream } from '../core/index.ts'
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
  ratios.sort()
  return { mean, low: quantile(ratios, 0.025), high: quantile(ratios, 0.975) }
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

export interface PairedOptions extends BootstrapOptions {
  /** Added to the denominator. */
  guard?: number
}

/** Percentile interval of the difference: both sides are resampled together. Resamples in which one side has no value are left out. */
export function pairedBootstrap(
  before: readonly Sums[],
  after: readonly Sums[],
  { seed, resamples = 2000, guard = 0 }: PairedOptions,
): RatioChange {
  assert(before.length === after.length, 'the same units on both sides')
  const n = before.length
  const columns = [before, after].flatMap((side) => [side.map((s) => s.above), side.map((s) => s.below)])
  const [a0, b0, a1, b1] = columns.map((column) => Float64Array.from(column)) as [
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
  ]
  const sums = new Float64Array(4)
  const difference = (pick: (i: number) => number) => {
    sums.set([0, guard, 0, guard])
    for (let i = 0; i < n; i++) {
      const at = pick(i)
      sums[0]! += a0[at]!
      sums[1]! += b0[at]!
      sums[2]! += a1[at]!
      sums[3]! += b1[at]!
    }
    return sums[2]! / sums[3]! - sums[0]! / sums[1]!
  }
  const mean = difference((i) => i)
  const [was, is] = [sums[0]! / sums[1]!, sums[2]! / sums[3]!]
  const random = stream(seed, 'paired bootstrap')
  const changes: number[] = []
  for (let r = 0; r < resamples && n > 1; r++) {
    const change = difference((i) => Math.floor((random.wordAt(r * n + i) / 4294967296) * n))
    if (!Number.isNaN(change)) changes.push(change)
  }
  const sorted = Float64Array.from(changes).sort()
  return { before: was, after: is, change: { mean, low: quantile(sorted, 0.025), high: quantile(sorted, 0.975) } }
}

/** Of fewer records an interval says little about others. */
export const fewRecords = 20

/** What a reader must know about the intervals of so few records; null: nothing. */
export function smallSampleNote(records: number): string | null {
  if (records >= fewRecords) return null
  if (records === 1) return 'one record: no interval'
  return `${records} records: an interval of fewer than ${fewRecords} means little`
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
