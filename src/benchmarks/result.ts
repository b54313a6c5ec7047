// The result file of a benchmark: metrics of one split in every protocol, and a row per sentence from which they can be recomputed.
import { basename, join } from 'node:path'
import { z } from 'zod'
import { parseWith } from '../config/index.ts'
import { atomicWrite, hashFile, Mismatch, readJson } from '../core/index.ts'
import { countWarning, type MaskBenchmark, recordsOf } from './benchmark.ts'
import { type Protocol, protocolsOf } from './protocols.ts'
import type { ScoredSentence } from './score.ts'
import { type SplitSummary, summariseSplit } from './summary.ts'

export const resultFormat = 'roundtrip-benchmark'

export interface BenchmarkResult {
  format: typeof resultFormat
  benchmark: string
  split: string
  /** The model and how it was asked, or the file of predictions. */
  by: Readonly<Record<string, unknown>>
  data: { folder: string; images: string | null; refs: string | null; refsHash: string | null }
  seed: number
  /** Wall time of answering, in this run. */
  seconds: number | null
  environment: Readonly<Record<string, unknown>>
  warning: string | null
  summaries: SplitSummary[]
  sentences: ScoredSentence[]
}

export interface ResultFacts {
  by: BenchmarkResult['by']
  seed: number
  seconds: number | null
  environment: BenchmarkResult['environment']
  refs: string | null
  protocols?: readonly Protocol[]
}

/** `scored` may hold more than the split; each sentence is counted in every split whose rule it meets. */
export function resultOf(
  benchmark: MaskBenchmark,
  split: string,
  scored: readonly ScoredSentence[],
  facts: ResultFacts,
): BenchmarkResult {
  const keys = new Set(recordsOf(benchmark, split).map((r) => JSON.stringify([r.split, r.id])))
  const sentences = scored.filter((s) => keys.has(JSON.stringify([s.split, s.id])))
  const { by, seed, seconds, environment } = facts
  const options = { benchmark: benchmark.name, split, seed }
  return {
    format: resultFormat,
    ...{ benchmark: benchmark.name, split, by },
    data: dataOf(benchmark),
    ...{ seed, seconds, environment },
    warning: countWarning(benchmark.name, split, sentences.length, facts.refs),
    summaries: (facts.protocols ?? protocolsOf(benchmark.name)).map((p) => summariseSplit(p, sentences, options)),
    sentences,
  }
}

function dataOf(benchmark: MaskBenchmark): BenchmarkResult['data'] {
  const { folder, source } = benchmark
  const refs = source && basename(source)
  return { folder, images: imagesOf(benchmark), refs, refsHash: source && hashFile(source) }
}

/** Scoring needs no images: missing images are not an error here, and pages are drawn without them. */
function imagesOf(benchmark: MaskBenchmark): string | null {
  try {
    return benchmark.images()
  } catch (error) {
    if (error instanceof Mismatch) return null
    throw error
  }
}

export function resultFile(folder: string, benchmark: string, split: string): string {
  return join(folder, `eval-${benchmark}-${split}.json`)
}

/** Metrics under the names that papers use, one object a split and protocol; fractions. */
export function tableRow({ metrics, counts, intervals, ...sums }: SplitSummary): Record<string, unknown> {
  return { ...sums, ...metrics, ...counts, intervals }
}

/** The stored form has `table` for the summaries, I and U of the reported protocol in each row, and one sentence a line. */
export function writeResult(file: string, result: BenchmarkResult): void {
  const { summaries, sentences: scored, ...facts } = result
  const reported = summaries[0]!.protocol
  const head = { ...facts, reported, table: summaries.map(tableRow) }
  const sentences = scored.map(({ scores, ...row }) => {
    const { intersection: I, union: U } = scores[reported]!
    return { ...row, I, U, scores }
  })
  const text = JSON.stringify(head, null, 2).replace(/\n\}$/, '')
  atomicWrite(file, `${text},\n  "sentences": [\n${sentences.map((s) => JSON.stringify(s)).join(',\n')}\n  ]\n}\n`)
}

/** What is stored, without the summaries: they follow from the sentences. */
export type StoredResult = Omit<BenchmarkResult, 'summaries'> & {
  reported: string
  table: Record<string, unknown>[]
  /** The file it was read from, for messages. */
  file?: string
}

const rle = z.looseObject({
  size: z.array(z.int().positive()).length(2),
  counts: z.union([z.string(), z.array(z.number())]),
})
const score = z.looseObject({
  intersection: z.number(),
  union: z.number(),
  iou: z.number().nullable(),
  none: z.boolean().optional(),
})
const storedSentence = z.looseObject({
  split: z.string(),
  id: z.union([z.string(), z.number()]),
  sentence: z.number(),
  image: z.string(),
  text: z.string(),
  nothing: z.boolean(),
  target: rle,
  rle: rle.nullable(),
  answer: z.string().optional(),
  scores: z.record(z.string(), score),
})
/** `split` becomes part of a file's name. */
const storedResult = z.looseObject({
  benchmark: z.string(),
  split: z.string().regex(/^[\w.-]+$/, 'a name of letters, digits, dots and dashes'),
  by: z.record(z.string(), z.unknown()),
  data: z.looseObject({ images: z.string().nullable() }),
  reported: z.string(),
  sentences: z.array(storedSentence),
})

export function readResult(file: string): StoredResult {
  const value = (readJson(file) ?? {}) as Record<string, unknown>
  const hint = 'write it with eval --benchmark'
  if (value['format'] !== resultFormat)
    throw new Mismatch({ where: file, field: 'format', expected: resultFormat, got: value['format'] ?? 'none', hint })
  parseWith(storedResult, value, file)
  return { ...(value as unknown as StoredResult), file }
}
