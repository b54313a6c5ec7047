// A file of predictions: one JSON line per sentence, in any order.
import { existsSync, readFileSync } from 'node:fs'
import { Mismatch, messageOf } from '../core/index.ts'
import type { Rle } from '../mask/index.ts'

/** First line of the rows that a run of ours writes; they are predictions too. */
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

/** Lines of other benchmarks are left out; a sentence that occurs twice, or a line that is no prediction, is an error. */
export function readPredictions(file: string, benchmark: string): Predictions {
  const out = new Map<string, Prediction>()
  for (const { value, where } of jsonLines(file)) {
    if (typeof value?.['benchmark'] === 'string' && value['benchmark'] !== benchmark) continue
    if (value?.['format'] === rowsFormat) continue // the head line of a run's own rows
    const row = checked(value, where)
    const key = predictionKey(row.benchmark, row.split, row.id, row.sentence)
    if (out.has(key)) throw new Mismatch({ where, field: 'sentence', expected: 'each sentence once', got: key })
    out.set(key, row)
  }
  return out
}

/** Other people's files may end without a newline; blank lines are nothing. */
function* jsonLines(file: string): Generator<{ value: Record<string, unknown> | null; where: string }> {
  if (!existsSync(file)) throw new Mismatch({ where: file, expected: 'a file of predictions', got: 'nothing there' })
  for (const [i, line] of readFileSync(file, 'utf8').split('\n').entries()) {
    const where = `${file}: line ${i + 1}`
    if (line.trim() === '') continue
    try {
      const value: unknown = JSON.parse(line)
      yield { value: typeof value === 'object' ? (value as Record<string, unknown>) : null, where }
    } catch (error) {
      throw new Mismatch({ where, expected: 'a JSON object', got: messageOf(error) }, { cause: error })
    }
  }
}

function checked(value: Record<string, unknown> | null, where: string): Prediction {
  const { split, id, sentence, rle } = value ?? {}
  const words =
    typeof value?.['benchmark'] === 'string' &&
    typeof split === 'string' &&
    (typeof id === 'string' || typeof id === 'number')
  if (value && words && Number.isInteger(sentence) && (rle === null || typeof rle === 'object')) {
    return value as unknown as Prediction
  }
  const expected = 'an object with benchmark, split, id, sentence and rle (null: no mask)'
  throw new Mismatch({ where, expected, got: value ? Object.keys(value).join(', ') : 'no JSON object' })
}
