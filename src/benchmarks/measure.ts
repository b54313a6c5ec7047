// Metrics of any benchmark whose items add up: each item has a row of numbers, a metric is a function of their sums.
// Intervals resample images, and sum again.
import { stream } from '../core/index.ts'
import { type Interval, quantile } from '../tracking/index.ts'

/** Column sums -> metric; NaN instead of a division by 0. */
export type MetricOf = (sums: Float64Array) => number

/** Sum of one column over the sum of another. */
export function share(above: number, below: number): MetricOf {
  return (sums) => sums[above]! / sums[below]!
}

export interface MeasureOptions {
  seed: number
  resamples?: number
}

/** Of items with `values` of the same length. */
export function measure(
  items: readonly { image: string; values: readonly number[] }[],
  metrics: Readonly<Record<string, MetricOf>>,
  { seed, resamples = 2000 }: MeasureOptions,
): Record<string, Interval> {
  const width = items[0]?.values.length ?? 0
  const byImage = new Map<string, Float64Array>()
  for (const { image, values } of items) {
    const sums = byImage.get(image) ?? new Float64Array(width)
    byImage.set(image, sums)
    values.forEach((value, i) => {
      sums[i]! += value
    })
  }
  const images = [...byImage.values()]
  const total = new Float64Array(width)
  for (const sums of images) add(total, sums)
  const drawn = images.length > 1 ? resampled(images, width, seed, resamples) : [] // one image has no interval
  return Object.fromEntries(
    Object.entries(metrics).map(([name, metric]) => [name, { mean: metric(total), ...ends(drawn.map(metric)) }]),
  )
}

function add(into: Float64Array, sums: Float64Array): void {
  for (let i = 0; i < sums.length; i++) into[i]! += sums[i]!
}

function resampled(images: readonly Float64Array[], width: number, seed: number, resamples: number): Float64Array[] {
  const random = stream(seed, 'bootstrap')
  return Array.from({ length: resamples }, (_, r) => {
    const sums = new Float64Array(width)
    for (let i = 0; i < images.length; i++) {
      add(sums, images[Math.floor((random.wordAt(r * images.length + i) / 4294967296) * images.length)]!)
    }
    return sums
  })
}

/** Resamples with a denominator of 0 are left out. */
function ends(values: readonly number[]): { low: number; high: number } {
  const sorted = Float64Array.from(values.filter((v) => !Number.isNaN(v))).sort()
  return { low: quantile(sorted, 0.025), high: quantile(sorted, 0.975) }
}
