// Recomputes reference files written by NLTK, one JSON object a line; every value must be equal.
import { readFileSync } from 'node:fs'
import { type CheckRow, Mismatch } from '../core/index.ts'
import { type MeteorDetail, meteorDetail, porterStem } from '../rewards/index.ts'

interface Line {
  where: string
  row: Record<string, unknown>
}

function readLines(path: string): Line[] {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new Mismatch({ where: path, expected: 'a readable file', got: error }, { cause: error })
  }
  const lines = text.split('\n').flatMap((line, i) => (line.trim() === '' ? [] : [parseLine(line, `${path}:${i + 1}`)]))
  if (lines.length === 0) throw new Mismatch({ where: path, expected: 'at least one row', got: 'an empty file' })
  return lines
}

function parseLine(line: string, where: string): Line {
  try {
    const row: unknown = JSON.parse(line)
    if (typeof row === 'object' && row !== null) return { where, row: row as Record<string, unknown> }
  } catch (error) {
    throw new Mismatch({ where, expected: 'one JSON object a line', got: error }, { cause: error })
  }
  throw new Mismatch({ where, expected: 'one JSON object a line', got: line.slice(0, 40) })
}

function text({ where, row }: Line, field: string): string {
  const value = row[field]
  if (typeof value === 'string') return value
  throw new Mismatch({ where, field, expected: 'a string', got: value })
}

function number({ where, row }: Line, field: string): number {
  const value = row[field]
  if (typeof value === 'number') return value
  throw new Mismatch({ where, field, expected: 'a number', got: value })
}

function exactRow(name: string, total: number, different: string[]): CheckRow {
  const detail =
    different.length === 0 ? `${total} rows` : `${different.length} of ${total} differ, first ${different[0]}`
  return { name, abs: Number.NaN, rel: Number.NaN, limit: 'equal', pass: different.length === 0, detail }
}

function scoreRow(lines: readonly Line[], details: readonly MeteorDetail[]): CheckRow {
  let abs = 0
  let rel = 0
  const different: string[] = []
  for (const [i, line] of lines.entries()) {
    const want = number(line, 'score')
    const got = details[i]!.score
    if (got === want) continue
    different.push(`${line.where}: expected ${want}, got ${got}`)
    abs = Math.max(abs, Math.abs(got - want))
    rel = Math.max(rel, Math.abs(got - want) / Math.abs(want))
  }
  return { ...exactRow('meteor score', lines.length, different), abs, rel }
}

function countRow(
  name: string,
  lines: readonly Line[],
  details: readonly MeteorDetail[],
  want: (line: Line) => unknown,
  got: (detail: MeteorDetail) => unknown,
): CheckRow {
  const different: string[] = []
  for (const [i, line] of lines.entries()) {
    const [a, b] = [JSON.stringify(want(line)), JSON.stringify(got(details[i]!))]
    if (a !== b) different.push(`${line.where}: expected ${a}, got ${b}`)
  }
  return exactRow(name, lines.length, different)
}

function stages({ where, row }: Line): unknown {
  if (Array.isArray(row.stages)) return row.stages
  throw new Mismatch({ where, field: 'stages', expected: '[exact, stem, synonym]', got: row.stages })
}

/** Rows {reference, hypothesis, ref_len, hyp_len, matches, chunks, stages, score}: scores and counts must be equal. */
export function verifyMeteor(path: string): CheckRow[] {
  const lines = readLines(path)
  const details = lines.map((line) => meteorDetail(text(line, 'reference'), text(line, 'hypothesis')))
  const count = (name: string, want: (line: Line) => unknown, got: (detail: MeteorDetail) => unknown) =>
    countRow(`meteor ${name}`, lines, details, want, got)
  return [
    scoreRow(lines, details),
    count(
      'matches',
      (line) => number(line, 'matches'),
      (detail) => detail.matches,
    ),
    count(
      'chunks',
      (line) => number(line, 'chunks'),
      (detail) => detail.chunks,
    ),
    count('matches per stage', stages, (detail) => detail.stages),
    count(
      'reference tokens',
      (line) => number(line, 'ref_len'),
      (detail) => detail.refLength,
    ),
    count(
      'hypothesis tokens',
      (line) => number(line, 'hyp_len'),
      (detail) => detail.hypLength,
    ),
  ]
}

/** Rows {word, stem}. */
export function verifyPorter(path: string): CheckRow[] {
  const different: string[] = []
  const lines = readLines(path)
  for (const line of lines) {
    const want = text(line, 'stem')
    const got = porterStem(text(line, 'word'))
    if (got !== want) different.push(`${line.where}: expected ${JSON.stringify(want)}, got ${JSON.stringify(got)}`)
  }
  return [exactRow('porter stem', lines.length, different)]
}
