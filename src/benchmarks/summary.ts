// Metrics of a split from the scores of its sentences, each with a 95 % interval that resamples images, not sentences:
// sentences of one image share its difficulty.
import { bootstrapRatioInterval, type Sums } from '../tracking/index.ts'
import type { Protocol, SentenceScore } from './protocols.ts'
import type { ScoredSentence } from './score.ts'

export interface SplitSummary {
  benchmark: string
  split: string
  protocol: string
  sentences: number
  images: number
  /** Sentences whose target has overlapping polygons: there the protocols differ. */
  overlapping: number
  /** Sums of pixels. */
  intersection: number
  union: number
  /** Metric name -> value, fractions: cIoU, gIoU, N_acc, T_acc, Pr@0.7, ... */
  metrics: Readonly<Record<string, number>>
  /** Counts from which N_acc and T_acc are computed. */
  counts: Readonly<Record<string, number>>
  intervals: Readonly<Record<string, { low: number; high: number }>>
}

/** A metric is the sum of `above` over the sum of `below` plus `guard`; null leaves the sentence out of both. */
export interface Metric {
  name: string
  guard: number
  terms(score: SentenceScore, row: ScoredSentence): [above: number, below: number] | null
}

const precisions = [0.7, 0.8, 0.9]

export function metricsOf(protocol: Protocol): Metric[] {
  /** Share of the sentences with, or without, a target. */
  const share = (name: string, nothing: boolean, hit: (score: SentenceScore) => boolean): Metric => ({
    name,
    guard: 0,
    terms: (score, row) => (row.nothing === nothing ? [hit(score) ? 1 : 0, 1] : null),
  })
  const base: Metric[] = [
    { name: 'cIoU', guard: protocol.guard, terms: (s) => [s.intersection, s.union] },
    { name: 'gIoU', guard: protocol.extra, terms: (s) => (s.iou === null ? null : [s.iou, 1]) },
  ]
  if (!protocol.noTarget) return base
  return [
    ...base,
    share('N_acc', true, (s) => s.none === true),
    share('T_acc', false, (s) => s.none !== true),
    ...precisions.map((t) => share(`Pr@${t}`, false, (s) => (s.iou ?? 0) >= t)),
  ]
}

/** For each image with a sentence that the metric covers. */
export function sumsByImage(metric: Metric, protocol: string, rows: readonly ScoredSentence[]): Map<string, Sums> {
  const byImage = new Map<string, Sums>()
  for (const row of rows) {
    const terms = metric.terms(row.scores[protocol]!, row)
    if (!terms) continue
    const sums = byImage.get(row.image) ?? { above: 0, below: 0 }
    byImage.set(row.image, sums)
    sums.above += terms[0]
    sums.below += terms[1]
  }
  return byImage
}

/** Images that add nothing to a metric are not resampled for it. */
function sumsOf(metric: Metric, protocol: string, rows: readonly ScoredSentence[]): { byImage: Sums[]; all: Sums } {
  const byImage = [...sumsByImage(metric, protocol, rows).values()]
  const all = { above: 0, below: 0 }
  for (const row of rows) {
    const [above, below] = metric.terms(row.scores[protocol]!, row) ?? [0, 0]
    all.above += above // sentence by sentence, as the reference adds
    all.below += below
  }
  return { byImage: byImage.filter((s) => s.below > 0), all }
}

export interface SummaryOptions {
  benchmark: string
  split: string
  seed: number
  resamples?: number
}

export function summariseSplit(
  protocol: Protocol,
  rows: readonly ScoredSentence[],
  { benchmark, split, seed, resamples }: SummaryOptions,
): SplitSummary {
  const metrics: Record<string, number> = {}
  const intervals: Record<string, { low: number; high: number }> = {}
  for (const metric of metricsOf(protocol)) {
    const { byImage, all } = sumsOf(metric, protocol.name, rows)
    metrics[metric.name] = all.above / (all.below + metric.guard)
    const [above, below] = [byImage.map((s) => s.above), byImage.map((s) => s.below)]
    const { low, high } = bootstrapRatioInterval(above, below, { seed, resamples })
    intervals[metric.name] = { low, high }
  }
  const total = (pick: (score: SentenceScore) => number) =>
    rows.reduce((sum, r) => sum + pick(r.scores[protocol.name]!), 0)
  return {
    ...{ benchmark, split, protocol: protocol.name, sentences: rows.length },
    images: new Set(rows.map((r) => r.image)).size,
    overlapping: rows.filter((r) => r.overlap > 0).length,
    intersection: total((s) => s.intersection),
    union: total((s) => s.union),
    metrics,
    counts: protocol.noTarget ? countsOf(protocol.name, rows) : {},
    intervals,
  }
}

/** TP: no target, and the model says so. TN: a target, and the model draws. */
function countsOf(protocol: string, rows: readonly ScoredSentence[]): Record<string, number> {
  const count = (nothing: boolean, none: boolean) =>
    rows.filter((r) => r.nothing === nothing && (r.scores[protocol]!.none === true) === none).length
  return { TP: count(true, true), FN: count(true, false), TN: count(false, false), FP: count(false, true) }
}
