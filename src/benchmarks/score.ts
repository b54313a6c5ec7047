// Predictions against targets: one row per sentence, with its intersection and union in every protocol.
import { expecting, Mismatch } from '../core/index.ts'
import { decodeRle, encodeRle, type Mask, type Rle } from '../mask/index.ts'
import type { BenchmarkRecord, MaskBenchmark } from './benchmark.ts'
import { type Predictions, predictionKey } from './predictions.ts'
import { protocolsOf, type SentenceScore } from './protocols.ts'
import { overlapOf, type Target, unionTarget } from './target.ts'

export interface ScoredSentence {
  split: string
  id: string | number
  sentence: number
  image: string
  text: string
  /** gRefCOCO: nothing is meant. */
  nothing: boolean
  /** Pixels that more than one polygon covers: where the protocols differ. */
  overlap: number
  target: Rle
  /** Null: no mask. */
  rle: Rle | null
  answer?: string
  scores: Readonly<Record<string, SentenceScore>>
}

/** Scores of one record's sentences; the target is drawn once. */
export async function scoreRecord(
  benchmark: MaskBenchmark,
  record: BenchmarkRecord,
  predictions: Predictions,
): Promise<ScoredSentence[]> {
  const target = await record.target()
  const stored = encodeRle(unionTarget(target))
  const overlap = overlapOf(target)
  const scorers = protocolsOf(benchmark.name).map((p) => [p.name, p.scorer(target)] as const)
  return record.sentences.map((text, sentence) => {
    const key = predictionKey(benchmark.name, record.split, record.id, sentence)
    const prediction = predictions.get(key)
    if (!prediction) throw missing(key)
    const mask = prediction.rle === null ? null : sized(prediction.rle, target, key)
    return {
      ...{ split: record.split, id: record.id, sentence, image: record.image, text },
      ...{ nothing: target.nothing, overlap, target: stored },
      rle: mask && encodeRle(mask),
      ...(prediction.answer === undefined ? {} : { answer: prediction.answer }),
      scores: Object.fromEntries(scorers.map(([name, score]) => [name, score(mask)])),
    }
  })
}

function missing(key: string): Mismatch {
  const hint = 'a sentence without a mask has a line with "rle": null; --split names the splits that the file is about'
  const expected = 'a prediction for every sentence'
  return new Mismatch({ where: 'predictions', field: key, expected, got: 'none', hint })
}

function sized(rle: Rle, target: Target, key: string): Mask {
  const where = `prediction ${key}`
  const mask = expecting({ where, field: 'rle', expected: 'COCO run lengths' }, () => decodeRle(rle, where))
  if (mask.height === target.height && mask.width === target.width) return mask
  const expected = `the image's ${target.height} x ${target.width}`
  throw new Mismatch({ where, field: 'rle.size', expected, got: `${mask.height} x ${mask.width}` })
}

/** Every sentence of the records, in their order. */
export async function scoreRecords(
  benchmark: MaskBenchmark,
  records: readonly BenchmarkRecord[],
  predictions: Predictions,
): Promise<ScoredSentence[]> {
  const rows: ScoredSentence[] = []
  for (const record of records) rows.push(...(await scoreRecord(benchmark, record, predictions)))
  return rows
}

/** Predictions of sentences that the benchmark does not have; a wrong file, or another division of the refs. */
export function unknownPredictions(benchmark: MaskBenchmark, predictions: Predictions): string[] {
  const known = new Set(
    benchmark.records.flatMap((record) =>
      record.sentences.map((_, sentence) => predictionKey(benchmark.name, record.split, record.id, sentence)),
    ),
  )
  return [...predictions.keys()].filter((key) => !known.has(key))
}
