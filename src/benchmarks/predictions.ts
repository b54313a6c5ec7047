// A file of predictions: one JSON line per sentence, in any order.
import { Mismatch, readJsonLines } from '../core/index.ts'
import type { Rle } from '../mask/index.ts'

/** First line of the rows that a benchmark run writes; they are predictions too. */
export const rowsFormat = 'roundtrip-benchmark-rows'

export interface Prediction {
  benchmark: string
  split: string
  id: string | number
  /** Index of the sentence inside its record. */
  sentence: number
  /** Null: the model gave no mask. */
  rle: Rle | null
  /** What the model wrote, where that is known. */
  answer?: string
}

export type Predictions = ReadonlyMap<string, Prediction>

export function predictionKey(benchmark: string, split: string, id: string | number, sentence: number): string {
  return JSON.stringify([benchmark, split, String(id), sentence])
}

/** Lines of other benchmarks are left out; a sentence that occurs twice, or a line that is not a prediction, is an error. */
export function readPredictions(file: string, benchmark: string): Predictions {
  const out = new Map<string, Prediction>()
  for (const { value, where } of readJsonLines(file)) {
    if (typeof value['benchmark'] === 'string' && value['benchmark'] !== benchmark) continue
    if (value['format'] === rowsFormat) continue // the head line of a run's own rows
    const row = checked(value, where)
    const key = predictionKey(row.benchmark, row.split, row.id, row.sentence)
    if (out.has(key)) throw new Mismatch({ where, field: 'sentence', expected: 'each sentence once', got: key })
    out.set(key, row)
  }
  return out
}

function checked(value: Record<string, unknown>, where: string): Prediction {
  const { split, id, sentence, rle } = value
  const words =
    typeof value['benchmark'] === 'string' &&
    typeof split === 'string' &&
    (typeof id === 'string' || typeof id === 'number')
  if (words && Number.isInteger(sentence) && (rle === null || typeof rle === 'object')) {
    return value as unknown as Prediction
  }
  const expected = 'an object with benchmark, split, id, sentence and rle (null: no mask)'
  throw new Mismatch({ where, expected, got: Object.keys(value).join(', ') })
}
