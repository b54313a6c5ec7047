// benchmarks-tiny and its kin: targets, questions and every metric of every protocol, from the files on disk.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type MaskBenchmark,
  openBenchmark,
  type Protocol,
  protocolsOf,
  readPredictions,
  recordsOf,
  type ScoredSentence,
  sa2vaTarget,
  scoreRecords,
  summariseSplit,
  unionTarget,
} from '../benchmarks/index.ts'
import { type CheckRow, Mismatch, readJsonLines } from '../core/index.ts'
import { decodeRle, encodeRle, type Mask, maskFromDense, type Rle } from '../mask/index.ts'

interface Row {
  benchmark: string
  split: string
  protocol: string
}

interface SentenceRow extends Row {
  id: string | number
  sentence: number
  I: number
  U: number
}

interface Expected {
  tolerance?: number
  table: (Row & Record<string, number | string>)[]
  sentences?: SentenceRow[]
}

interface TargetRow extends Pick<SentenceRow, 'benchmark' | 'split' | 'id'> {
  target?: Rle
  target_sa2va?: Rle
  ignore?: Rle
  questions?: string[]
}

export async function verifyBenchmarks(dir: string): Promise<CheckRow[]> {
  const expected = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as Expected
  const rows: CheckRow[] = []
  for (const name of new Set(expected.table.map((row) => row.benchmark))) {
    const benchmark = openBenchmark(dir, name)
    rows.push(...(await targetRows(dir, benchmark)))
    rows.push(...(await metricRows(dir, benchmark, expected)))
  }
  return rows
}

async function metricRows(dir: string, benchmark: MaskBenchmark, expected: Expected): Promise<CheckRow[]> {
  const predictions = readPredictions(join(dir, 'predictions.jsonl'), benchmark.name)
  const scored = await scoreRecords(benchmark, benchmark.records.filter(used(benchmark, expected)), predictions)
  const scoredOf = (split: string) => {
    const keys = new Set(recordsOf(benchmark, split).map((r) => `${r.split} ${r.id}`))
    return scored.filter((s) => keys.has(`${s.split} ${s.id}`))
  }
  return expected.table
    .filter((row) => row.benchmark === benchmark.name)
    .flatMap((row) => {
      const sentences = (expected.sentences ?? []).filter((s) => sameRow(s, row))
      return splitRows(benchmark, row, scoredOf(row.split), sentences, expected.tolerance ?? 1e-6)
    })
}

/** Records that some row of the table is about: a file may hold train records without predictions. */
function used(benchmark: MaskBenchmark, expected: Expected): (record: MaskBenchmark['records'][number]) => boolean {
  const splits = new Set(expected.table.filter((row) => row.benchmark === benchmark.name).map((row) => row.split))
  return (record) => [...splits].some((split) => benchmark.inSplit(split, record))
}

const sameRow = (a: Row, b: Row) => a.benchmark === b.benchmark && a.split === b.split && a.protocol === b.protocol

function splitRows(
  benchmark: MaskBenchmark,
  row: Expected['table'][number],
  scored: readonly ScoredSentence[],
  sentences: readonly SentenceRow[],
  tolerance: number,
): CheckRow[] {
  const protocol = protocolOf(benchmark, row.protocol)
  const options = { benchmark: benchmark.name, split: row.split, seed: 0, resamples: 1 }
  const { metrics, counts, ...sums } = summariseSplit(protocol, scored, options)
  const got = { ...sums, ...metrics, ...counts } as Record<string, unknown>
  const name = `${row.benchmark}.${row.split}.${row.protocol}`
  const numbers = Object.entries(row).filter((entry): entry is [string, number] => typeof entry[1] === 'number')
  const checks = numbers.map(([key, value]) => numberRow(`${name}.${key}`, got[key], value, tolerance))
  return sentences.length > 0 ? [...checks, sentenceRow(`${name}.sentences`, scored, sentences)] : checks
}

function protocolOf(benchmark: MaskBenchmark, name: string): Protocol {
  const protocol = protocolsOf(benchmark.name).find((p) => p.name === name)
  if (protocol) return protocol
  const expected = protocolsOf(benchmark.name).map((p) => p.name)
  throw new Mismatch({ where: 'expected.json', field: 'protocol', expected: expected.join(', '), got: name })
}

function numberRow(name: string, got: unknown, want: number, tolerance: number): CheckRow {
  const abs = typeof got === 'number' ? Math.abs(got - want) : Number.NaN
  const rel = abs / Math.max(Math.abs(want), 1e-30)
  return { name, abs, rel, limit: `${tolerance} absolute`, pass: abs <= tolerance, detail: `${got} against ${want}` }
}

function exactRow(name: string, different: readonly string[], count: number): CheckRow {
  const detail = different.length > 0 ? `${different.length} of ${count} differ, first ${different[0]}` : undefined
  const share = different.length / Math.max(1, count)
  return { name, abs: different.length, rel: share, limit: 'equal', pass: different.length === 0, detail }
}

function sentenceRow(name: string, scored: readonly ScoredSentence[], wanted: readonly SentenceRow[]): CheckRow {
  const found = new Map(scored.map((s) => [`${s.id} ${s.sentence}`, s]))
  const different = wanted.filter(({ id, sentence, I, U, protocol }) => {
    const score = found.get(`${id} ${sentence}`)?.scores[protocol]
    return score?.intersection !== I || score.union !== U
  })
  const extra = found.size === wanted.length ? [] : [`${found.size} sentences against ${wanted.length}`]
  return exactRow(name, [...different.map((s) => `${s.id} ${s.sentence}`), ...extra], wanted.length)
}

/** targets.jsonl is optional: a set without it is checked by its metrics alone. */
async function targetRows(dir: string, benchmark: MaskBenchmark): Promise<CheckRow[]> {
  const file = join(dir, 'targets.jsonl')
  if (!existsSync(file)) return []
  const rows = readJsonLines(file).map(({ value }) => value as unknown as TargetRow)
  const wanted = rows.filter((row) => row.benchmark === benchmark.name)
  const masks: string[] = []
  const questions: string[] = []
  for (const row of wanted) {
    const record = benchmark.records.find((r) => String(r.id) === String(row.id) && r.split === row.split)
    const target = await record?.target()
    const ignore = target?.ignore && maskFromDense(target.ignore, target.height, target.width)
    const same =
      target &&
      sameMask(unionTarget(target), row.target) &&
      sameMask(sa2vaTarget(target), row.target_sa2va) &&
      (!ignore || sameMask(ignore, row.ignore))
    if (!same) masks.push(`${row.split} ${row.id}`)
    if (row.questions && JSON.stringify(row.questions) !== JSON.stringify(record?.questions))
      questions.push(`${row.id}`)
  }
  const name = benchmark.name
  return [exactRow(`${name}.targets`, masks, wanted.length), exactRow(`${name}.questions`, questions, wanted.length)]
}

function sameMask(got: Mask, want: Rle | undefined): boolean {
  return want === undefined || encodeRle(got).counts === encodeRle(decodeRle(want)).counts
}
