// Two results on the same sentences: the change of each metric with its interval, and the sentences that moved.
import { Mismatch } from '../core/index.ts'
import { type PairedSums, pairedBootstrap, type RatioChange, type Sums } from '../tracking/index.ts'
import type { MaskBenchmarkName } from './names.ts'
import { isMaskBenchmark } from './open.ts'
import { type Protocol, protocolsOf } from './protocols.ts'
import type { StoredResult } from './result.ts'
import type { ScoredSentence } from './score.ts'
import { type Metric, metricsOf, type SplitSummary, sumsByImage } from './summary.ts'

/** Images are resampled, both models on the same ones. */
export interface MetricChange extends RatioChange {
  name: string
}

export interface SentenceChange {
  before: ScoredSentence
  after: ScoredSentence
  /** IoU of each, and after minus before. */
  iou: [number, number]
  change: number
}

export interface Comparison extends Pick<SplitSummary, 'benchmark' | 'split' | 'protocol' | 'sentences' | 'images'> {
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
  const images = [...new Set(pairs.map(([a]) => a.image))]
  const metrics = metricsOf(protocol)
  const sums = metrics.map((metric) => pairedSums(metric, protocol.name, pairs, images))
  const changes = pairedBootstrap(sums, options)
  const count = (is: (change: number) => boolean) => moved.filter((m) => is(m.change)).length
  return {
    ...{ benchmark: before.benchmark, split: before.split, protocol: protocol.name, sentences: pairs.length },
    images: images.length,
    metrics: changes.map((change, i) => ({ name: metrics[i]!.name, ...change })),
    ...{ wins: count((c) => c > 0), losses: count((c) => c < 0), ties: count((c) => c === 0) },
    moved: moved.sort((p, q) => Math.abs(q.change) - Math.abs(p.change)),
  }
}

function changeOf(before: ScoredSentence, after: ScoredSentence, protocol: string): SentenceChange[] {
  const [a, b] = [before.scores[protocol]!.iou, after.scores[protocol]!.iou]
  return a === null || b === null ? [] : [{ before, after, iou: [a, b], change: b - a }]
}

/** Sums of both models by image. */
function pairedSums(
  metric: Metric,
  protocol: string,
  pairs: readonly [ScoredSentence, ScoredSentence][],
  images: readonly string[],
): PairedSums {
  const side = (i: 0 | 1): Sums[] => {
    const rows = pairs.map((pair) => pair[i])
    const sums = sumsByImage(metric, protocol, rows)
    return images.map((image) => sums.get(image) ?? { above: 0, below: 0 })
  }
  return { before: side(0), after: side(1), guard: metric.guard }
}
