// Recomputes reference files written by NLTK, one JSON object a line; every value must be equal.
import { type CheckRow, type JsonLine, Mismatch, readJsonLines } from '../core/index.ts'
import { type MeteorDetail, meteorDetail, porterStem } from '../rewards/index.ts'

function linesOf(path: string): JsonLine[] {
  const lines = readJsonLines(path)
  if (lines.length === 0) throw new Mismatch({ where: path, expected: 'at least one row', got: 'an empty file' })
  return lines
}

const kinds = {
  'a string': (value: unknown) => typeof value === 'string',
  'a number': (value: unknown) => typeof value === 'number',
  '[exact, stem, synonym]': Array.isArray,
}

function fieldOf<T>({ where, value }: JsonLine, field: string, expected: keyof typeof kinds): T {
  const got = value[field]
  if (kinds[expected](got)) return got as T
  throw new Mismatch({ where, field, expected, got })
}

const text = (line: JsonLine, field: string) => fieldOf<string>(line, field, 'a string')
const number = (line: JsonLine, field: string) => fieldOf<number>(line, field, 'a number')

/** One row over all lines; the first line that differs is named. */
function equalRow(
  name: string,
  lines: readonly JsonLine[],
  want: readonly unknown[],
  got: readonly unknown[],
): CheckRow {
  const different = lines.flatMap(({ where }, i) => {
    const [a, b] = [JSON.stringify(want[i]), JSON.stringify(got[i])]
    return a === b ? [] : [`${where}: expected ${a}, got ${b}`]
  })
  const pass = different.length === 0
  const detail = pass ? `${lines.length} rows` : `${different.length} of ${lines.length} differ, first ${different[0]}`
  return { name, abs: Number.NaN, rel: Number.NaN, limit: 'equal', pass, detail }
}

function scoreRow(lines: readonly JsonLine[], details: readonly MeteorDetail[]): CheckRow {
  const [want, got] = [lines.map((line) => number(line, 'score')), details.map(({ score }) => score)]
  const differences = want.map((value, i) => Math.abs(got[i]! - value))
  const abs = differences.reduce((a, b) => Math.max(a, b), 0)
  const rel = differences.reduce((a, b, i) => Math.max(a, b === 0 ? 0 : b / Math.abs(want[i]!)), 0)
  return { ...equalRow('meteor score', lines, want, got), abs, rel }
}

/** Names of the counts, their fields in a line, and ours. */
const counts: readonly [string, string, (detail: MeteorDetail) => unknown, (keyof typeof kinds)?][] = [
  ['matches', 'matches', (detail) => detail.matches],
  ['chunks', 'chunks', (detail) => detail.chunks],
  ['matches per stage', 'stages', (detail) => detail.stages, '[exact, stem, synonym]'],
  ['reference tokens', 'ref_len', (detail) => detail.refLength],
  ['hypothesis tokens', 'hyp_len', (detail) => detail.hypLength],
]

/** Rows {reference, hypothesis, ref_len, hyp_len, matches, chunks, stages, score}: scores and counts must be equal. */
export function verifyMeteor(path: string): CheckRow[] {
  const lines = linesOf(path)
  const details = lines.map((line) => meteorDetail(text(line, 'reference'), text(line, 'hypothesis')))
  const score = scoreRow(lines, details)
  const rows = counts.map(([name, field, pick, kind = 'a number']) => {
    const want = lines.map((line) => fieldOf(line, field, kind))
    return equalRow(`meteor ${name}`, lines, want, details.map(pick))
  })
  return [score, ...rows]
}

/** Rows {word, stem}. */
export function verifyPorter(path: string): CheckRow[] {
  const lines = linesOf(path)
  const got = lines.map((line) => porterStem(text(line, 'word')))
  const want = lines.map((line) => text(line, 'stem'))
  return [equalRow('porter stem', lines, want, got)]
}
