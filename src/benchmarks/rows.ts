// The file that a run appends its answers to: one head line that says under which settings, then a line per answer.
import { existsSync } from 'node:fs'
import { Mismatch } from '../core/index.ts'
import { JsonLines, readLines } from '../tracking/index.ts'
import { rowsFormat } from './predictions.ts'

export type Row = Record<string, unknown>

/** Everything that decides the answers; rows written under another header are not mixed in. */
export type RowsHeader = Readonly<Record<string, unknown>>

export interface BenchmarkHost {
  /** Rows written by this run, of those that were open at its start, and those that an earlier run left. */
  progress(done: number, total: number, before: number): void
  stopping(): boolean
  /** Lets messages in between two batches. */
  yieldToLoop(): Promise<void>
}

export interface RowsRun {
  /** JSONL file of the rows. */
  rows: string
  header: RowsHeader
  host: BenchmarkHost
}

/** What is open: batches that add up to `total` rows, what to read for a batch, and its rows. */
interface OpenWork<B, L> {
  total: number
  batches: readonly B[]
  load(batch: B): Promise<L>
  answer(loaded: L): readonly Row[]
}

/** Appends the rows of each batch as soon as they are known; `open` gets those of an earlier run. False: stopped before the last. */
export async function answerInBatches<B, L>(
  { rows: file, header, host }: RowsRun,
  open: (known: readonly Row[]) => OpenWork<B, L>,
): Promise<boolean> {
  const { lines, known } = openRows(file, header)
  try {
    const { total, batches, load, answer } = open(known)
    if (batches.length === 0) return true
    let done = 0
    host.progress(done, total, known.length)
    let next = load(batches[0]!) // the next batch is read while the model answers
    for (let i = 0; i < batches.length; i++) {
      const loaded = await next
      if (host.stopping()) return false
      if (i + 1 < batches.length) {
        next = load(batches[i + 1]!)
        next.catch(() => undefined) // seen when it is awaited
      }
      const rows = answer(loaded)
      lines.append(...rows)
      done += rows.length
      host.progress(done, total, known.length)
      await host.yieldToLoop()
    }
    return true
  } finally {
    lines.close()
  }
}

/** Opens the rows file, or a new one; `known` gets the rows that are there. A torn last line is cut off. */
function openRows(file: string, header: RowsHeader): { lines: JsonLines; known: Row[] } {
  const isNew = !existsSync(file)
  const lines = new JsonLines(file)
  if (isNew || lines.size === 0) {
    lines.append({ format: rowsFormat, header })
    return { lines, known: [] }
  }
  const [head, ...known] = [...readLines(file)].flatMap(({ value }) => (value ? [value] : []))
  const own = head?.['header']
  if (JSON.stringify(own) === JSON.stringify(header)) return { lines, known }
  lines.close()
  const [expected, got] = own && typeof own === 'object' ? apart(header, own as Row) : [header, 'no header']
  const hint = 'these rows belong to another model, data or protocol: choose another --out, or remove the file'
  throw new Mismatch({ where: file, field: 'header', expected: JSON.stringify(expected), got, hint })
}

/** What two headers say differently, alone. */
function apart(a: RowsHeader, b: Row): [Row, Row] {
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])]
  const differ = keys.filter((key) => JSON.stringify(a[key]) !== JSON.stringify(b[key]))
  const of = (header: Row) => Object.fromEntries(differ.map((key) => [key, header[key] ?? null]))
  return [of(a), of(b)]
}
