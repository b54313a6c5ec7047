import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { decodeRle, maskFromDense, type Rle } from '../mask/index.ts'
import {
  openBenchmark,
  overlapOf,
  protocolsOf,
  readPredictions,
  recordsOf,
  type ScoredSentence,
  sa2vaTarget,
  scoreRecords,
  summariseSplit,
  unionTarget,
} from './index.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden/benchmarks-tiny', import.meta.url))

interface Expected {
  table: (Record<string, number> & { benchmark: string; split: string; protocol: string })[]
  sentences: {
    benchmark: string
    split: string
    protocol: string
    id: string | number
    sentence: number
    I: number
    U: number
  }[]
}
interface GoldenTarget {
  benchmark: string
  split: string
  id: string | number
  image: string
  target: Rle
  overlap?: Rle
  target_sa2va?: Rle
  ignore?: Rle
  questions: string[]
}

const expected = JSON.parse(readFileSync(join(golden, 'expected.json'), 'utf8')) as Expected
const targets = readFileSync(join(golden, 'targets.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as GoldenTarget)
const names = [...new Set(expected.table.map((row) => row.benchmark))]

for (const name of names) {
  test(`${name}: every target and question is the reference's, pixel by pixel and letter by letter`, async () => {
    const { records } = openBenchmark(golden, name)
    const wanted = targets.filter((t) => t.benchmark === name)
    assert.equal(records.length, wanted.length)
    for (const t of wanted) {
      const record = records.find((r) => String(r.id) === String(t.id) && r.split === t.split)
      assert.ok(record, `${t.id}`)
      const target = await record.target()
      assert.deepEqual(unionTarget(target), decodeRle(t.target), `${t.id} target`)
      assert.deepEqual(record.questions, t.questions)
      assert.ok(record.image.endsWith(t.image))
      if (t.target_sa2va) assert.deepEqual(sa2vaTarget(target), decodeRle(t.target_sa2va), `${t.id} sa2va`)
      if (name.startsWith('refcoco')) assert.equal(overlapOf(target) > 0, t.overlap !== undefined, `${t.id} overlap`)
      if (t.ignore) assert.deepEqual(maskFromDense(target.ignore!, target.height, target.width), decodeRle(t.ignore))
    }
  })

  test(`${name}: every metric and every sentence's I and U are the reference's in every protocol`, async () => {
    const benchmark = openBenchmark(golden, name)
    const predictions = readPredictions(join(golden, 'predictions.jsonl'), name)
    const rows = expected.table.filter((row) => row.benchmark === name)
    for (const row of rows) {
      const scored = await scoreRecords(benchmark, recordsOf(benchmark, row.split), predictions)
      const protocol = protocolsOf(benchmark.name).find((p) => p.name === row.protocol)!
      const { metrics, counts, ...sums } = summariseSplit(protocol, scored, {
        benchmark: name,
        split: row.split,
        seed: 1,
        resamples: 50,
      })
      const got = { ...sums, ...metrics, ...counts } as Record<string, unknown>
      for (const [key, value] of Object.entries(row)) {
        const where = `${row.split} ${row.protocol} ${key}`
        if (typeof value === 'number')
          assert.ok(Math.abs((got[key] as number) - value) <= 1e-9, `${where}: ${got[key]}, ${value}`)
        else assert.equal(got[key], value, where)
      }
      sentencesAgree(scored, row)
    }
  })
}

function sentencesAgree(scored: readonly ScoredSentence[], row: Expected['table'][number]): void {
  const wanted = expected.sentences.filter(
    (s) => s.benchmark === row.benchmark && s.split === row.split && s.protocol === row.protocol,
  )
  assert.equal(scored.length, wanted.length)
  for (const { id, sentence, I, U } of wanted) {
    const found = scored.find((s) => String(s.id) === String(id) && s.sentence === sentence)!
    const score = found.scores[row.protocol]!
    assert.deepEqual([score.intersection, score.union], [I, U], `${row.split} ${row.protocol} ${id} ${sentence}`)
  }
}
