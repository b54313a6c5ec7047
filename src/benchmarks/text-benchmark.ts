// Benchmarks whose answers are words about regions: what an item is, where predictions of them come from, and what a table is.
import { Mismatch, readJson, readJsonLines } from '../core/index.ts'
import type { Rle } from '../mask/index.ts'
import type { Interval } from '../tracking/index.ts'
import type { MeasureOptions } from './measure.ts'
import { rowsFormat } from './predictions.ts'

export interface TextItem {
  id: string
  /** Relative to the benchmark's folder of images. */
  image: string
  regions: readonly Rle[]
  /** With `<image>`; regions are called region1, region2, ... */
  question: string
}

export interface TextBenchmark {
  name: string
  /** The file that says what is asked, for its hash. */
  source: string
  /** Folder of the images; scoring needs none, so they are looked for when a model answers. */
  images(): string
  items: readonly TextItem[]
  /** Items of the published set; null where nobody says. */
  published: number | null
  /** Metrics of a whole set of answers, by item. May call a judge. */
  score(answers: ReadonlyMap<string, string>, options: MeasureOptions): Promise<TextScores>
}

export interface TextScores {
  metrics: Readonly<Record<string, Interval>>
  /** A row per item with what it scored, for the result file. */
  rows: readonly Readonly<Record<string, unknown>>[]
}

export function countTextWarning({ name, items, published }: TextBenchmark): string | null {
  if (published === null || items.length === published) return null
  return `${name}: ${items.length} items, the published set has ${published}; metrics are not comparable with papers`
}

/**
 * Answers by item: a JSON object {id: text}, a JSON list, or JSON lines of {id, answer | text | caption | model_output}. Every
 * item must have one.
 */
export function readAnswers(file: string, items: readonly TextItem[]): Map<string, string> {
  const answers = /\.jsonl$/.test(file) ? fromLines(file) : fromJson(readJson(file), file)
  const lost = items.filter((item) => !answers.has(item.id))
  if (lost.length === 0) return answers
  const got = `${items.length - lost.length} of ${items.length}; ${lost[0]!.id} has none`
  throw new Mismatch({ where: file, field: 'id', expected: 'an answer for every item', got })
}

function fromJson(value: unknown, file: string): Map<string, string> {
  if (Array.isArray(value)) return new Map(value.map((row, i) => answerOf(row, `${file}: row ${i}`, String(i))))
  if (typeof value !== 'object' || value === null)
    throw new Mismatch({ where: file, expected: 'an object {id: text} or a list', got: typeof value })
  return new Map(Object.entries(value).map(([id, text]) => [id, textOf(text, `${file}: ${id}`)]))
}

function fromLines(file: string): Map<string, string> {
  const out = new Map<string, string>()
  for (const { value: row, where } of readJsonLines(file)) {
    if (row['format'] === rowsFormat) continue
    const [id, text] = answerOf(row, where, null)
    if (out.has(id)) throw new Mismatch({ where, field: 'id', expected: 'each item once', got: id })
    out.set(id, text)
  }
  return out
}

function answerOf(row: unknown, where: string, place: string | null): [string, string] {
  const fields = (typeof row === 'object' && row !== null ? row : {}) as Record<string, unknown>
  const id = fields['id'] ?? place
  if (typeof id !== 'string' && typeof id !== 'number')
    throw new Mismatch({ where, field: 'id', expected: 'a text or a number', got: id ?? 'none' })
  const text = ['answer', 'text', 'caption', 'model_output'].map((key) => fields[key]).find((v) => v !== undefined)
  return [String(id), textOf(text, where)]
}

function textOf(text: unknown, where: string): string {
  if (typeof text === 'string') return text
  throw new Mismatch({ where, field: 'answer', expected: 'a text', got: text ?? 'none' })
}
