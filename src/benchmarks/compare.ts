// Two results on the same sentences: the change of each metric with its interval, and the sentences that moved.
import { assert, Mismatch, stream } from '../core/index.ts'
import { type Interval, quantile } from '../tracking/index.ts'
import type { MaskBenchmarkName } from './names.ts'
import { isMaskBenchmark } from './open.ts'
import { type Protocol, protocolsOf } from './protocols.ts'
import type { StoredResult } from './result.ts'
import type { ScoredSentence } from './score.ts'
import { type Metric, metricsOf, type Sums, sumsByImage } from './summary.ts'

export interface MetricChange {
  name: string
  before: number
  after: number
  /** After minus before, with its 95 % interval: images are resampled, both models on the same ones. */
  change: Interval
}

export interface SentenceChange {
  before: ScoredSentence
  after: ScoredSentence
  /** IoU of each, and after minus before. */
  iou: [number, number]
  change: number
}

export interface Comparison {
  benchmark: string
  split: string
  protocol: string
  sentences: number
  images: number
  metrics: MetricChange[]
  wins: number
  losses: number
  ties: number
  /** Largest change first. */
  moved: SentenceChange[]
}

const keyOf = (s: ScoredSentence) => JSON.stringify([s.split, s.id, s.sentence])

/** Sentences of both files, paired; a sentence that only one has, or that asks for another mask, is an error. */
function paired(before: StoredResult, after: StoredResult): [ScoredSentence, ScoredSentence][] {
  for (const field of ['benchmark', 'split'] as const) {
    if (before[field] !== after[field])
      throw new Mismatch({ where: 'compare', field, expected: before[field], got: after[field] })
  }
  const second = new Map(after.sentences.map((s) => [keyOf(s), s]))
  const lost = before.sentences.filter((s) => !second.has(keyOf(s)))
  if (lost.length > 0 || second.size !== before.sentences.length) {
    const expected = `the same ${before.sentences.length} sentences`
    const got = `${second.size} sentences, ${lost.length} of the first file missing`
    throw new Mismatch({ where: 'compare', field: 'sentences', expected, got })
  }
  return before.sentences.map((s) => {
    const other = second.get(keyOf(s))!
    if (JSON.stringify(s.target) === JSON.stringify(other.target) && s.text === other.text) return [s, other]
    throw new Mismatch({ where: 'compare', field: keyOf(s), expected: 'the same text and target', got: 'other data' })
  })
}

/** The one that the flag names, else the first file's reported one. */
function protocolOf(benchmark: MaskBenchmarkName, asked: string | null, { reported, file }: StoredResult): Protocol {
  const known = protocolsOf(benchmark)
  const protocol = known.find(({ name }) => name === (asked ?? reported))
  if (protocol) return protocol
  const expected = known.map((p) => p.name).join(', ')
  if (asked !== null) throw new Mismatch({ where: 'flags', field: '--protocol', expected, got: asked })
  throw new Mismatch({ where: file ?? 'compare', field: 'reported', expected, got: reported })
}

function requireScores({ sentences, file }: StoredResult, protocol: string): void {
  const lacking = sentences.find(({ scores }) => !Object.hasOwn(scores, protocol))
  if (!lacking) return
  const hint = 'choose another with --protocol, or evaluate again'
  const field = `sentence ${keyOf(lacking)}`
  throw new Mismatch({ where: file ?? 'compare', field, expected: `scores of protocol ${protocol}`, got: 'none', hint })
}

export interface CompareOptions {
  /** Null: the first file's reported one. */
  protocol: string | null
  seed: number
  resamples?: number
}

export function compareResults(before: StoredResult, after: StoredResult, options: CompareOptions): Comparison {
  const pairs = paired(before, after)
  if (!isMaskBenchmark(before.benchmark))
    throw new Mismatch({ where: 'compare', field: 'benchmark', expected: 'one of masks', got: before.benchmark })
  const protocol = protocolOf(before.benchmark, options.protocol, before)
  for (const result of [before, after]) requireScores(result, protocol.name)
  const moved = pairs.flatMap(([a, b]) => changeOf(a, b, protocol.name))
  const count = (is: (change: number) => boolean) => moved.filter((m) => is(m.change)).length
  return {
    ...{ benchmark: before.benchmark, split: before.split, protocol: protocol.name, sentences: pairs.length },
    images: new Set(pairs.map(([a]) => a.image)).size,
    metrics: metricsOf(protocol).map((metric) => metricChange(metric, protocol.name, pairs, options)),
    ...{ wins: count((c) => c > 0), losses: count((c) => c < 0), ties: count((c) => c === 0) },
    moved: moved.sort((p, q) => Math.abs(q.change) - Math.abs(p.change)),
  }
}

function changeOf(before: ScoredSentence, after: ScoredSentence, protocol: string): SentenceChange[] {
  const [a, b] = [before.scores[protocol]!.iou, after.scores[protocol]!.iou]
  return a === null || b === null ? [] : [{ before, after, iou: [a, b], change: b - a }]
}

function metricChange(
  metric: Metric,
  protocol: string,
  pairs: readonly [ScoredSentence, ScoredSentence][],
  { seed, resamples = 2000 }: CompareOptions,
): MetricChange {
  const images = [...new Set(pairs.map(([a]) => a.image))]
  const [before, after] = [0, 1].map((side) => {
    const sums = sumsByImage(
      metric,
      protocol,
      pairs.map((pair) => pair[side as 0 | 1]),
    )
    return images.map((image) => sums.get(image) ?? { above: 0, below: 0 })
  }) as [Sums[], Sums[]]
  const all = images.map((_, i) => i)
  const [a, b] = [ratio(before, all, metric.guard), ratio(after, all, metric.guard)]
  const { low, high } = pairedInterval(before, after, metric.guard, seed, resamples)
  return { name: metric.name, before: a, after: b, change: { mean: b - a, low, high } }
}

function ratio(sums: readonly Sums[], picked: readonly number[], guard: number): number {
  let [above, below] = [0, guard]
  for (const i of picked) {
    above += sums[i]!.above
    below += sums[i]!.below
  }
  return above / below
}

/** Percentile interval of the difference; resamples without a sentence for a metric are left out. */
function pairedInterval(
  before: readonly Sums[],
  after: readonly Sums[],
  guard: number,
  seed: number,
  resamples: number,
) {
  assert(before.length === after.length, 'the same images on both sides')
  const n = before.length
  const random = stream(seed, 'paired bootstrap')
  const changes: number[] = []
  for (let r = 0; r < resamples; r++) {
    const picked = before.map((_, i) => Math.floor((random.wordAt(r * n + i) / 4294967296) * n))
    const change = ratio(after, picked, guard) - ratio(before, picked, guard)
    if (!Number.isNaN(change)) changes.push(change)
  }
  const sorted = Float64Array.from(changes).sort()
  return { low: quantile(sorted, 0.025), high: quantile(sorted, 0.975) }
}
