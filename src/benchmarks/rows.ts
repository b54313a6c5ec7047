// The file that a run appends its answers to: one head line that says under which settings, then a line per answer.
import { existsSync } from 'node:fs'
import { Mismatch } from '../core/index.ts'
import { JsonLines, readLines } from '../tracking/index.ts'
import { rowsFormat } from './predictions.ts'

export type Row = Record<string, unknown>

/** Everything that decides the answers; rows written under another header are not mixed in. */
export type RowsHeader = Readonly<Record<string, unknown>>

/** Opens the rows file, or a new one; `known` gets the rows that are there. A torn last line is cut off. */
export function openRows(file: string, header: RowsHeader): { lines: JsonLines; known: Row[] } {
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
