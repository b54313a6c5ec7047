import assert from 'node:assert/strict'
import test from 'node:test'
import { apartFrom } from '../tracking/index.ts'
import { comparisonTable, evaluations, evaluationTable } from './table.ts'

const of = (low: number, mean: number, high: number) => ({ low, mean, high })
const alone = (mean: number) => of(Number.NaN, mean, Number.NaN)

test('intervals are apart only if they share no value; one record is never apart', () => {
  assert.equal(apartFrom(of(0.1, 0.2, 0.3), of(0.31, 0.4, 0.5)), 'higher')
  assert.equal(apartFrom(of(0.31, 0.4, 0.5), of(0.1, 0.2, 0.3)), 'lower')
  assert.equal(apartFrom(of(0.1, 0.2, 0.3), of(0.3, 0.4, 0.5)), null)
  assert.equal(apartFrom(of(0.1, 0.2, 0.3), of(-0.1, 0, 0.1)), null)
  assert.deepEqual([apartFrom(alone(0.4), alone(0.5)), apartFrom(of(0, 0, 0), alone(1))], [null, null])
})

test('the comparison has a row per metric with the change and its sign', () => {
  const rows = comparisonTable(
    { a: of(0.1, 0.2, 0.3), b: of(0, 0.5, 1), c: of(0, 0.5, 1) },
    { a: of(0.4, 0.5, 0.6), b: of(0, 0.25, 1) },
    64,
  ).split('\n')
  assert.match(rows[1]!, /^a +0\.200 \[0\.100, 0\.300\] +0\.500 \[0\.400, 0\.600\] +\+0\.300 +higher$/)
  assert.match(rows[2]!, /-0\.250 +no$/)
  assert.match(rows[3]!, /^c .*\] +- +- +-$/)
  assert.deepEqual(rows.slice(4), ['', '64 held-out records; apart: the two intervals have no value in common'])
  assert.match(comparisonTable({ a: alone(0.4) }, { a: alone(0.5) }, 1), /^1 held-out record; apart/m)
})

test('the comparison fits 80 columns', () => {
  const before = { 'answer/seg_rate': of(1, 1, 1), 'caption/meteor': of(0.1, 0.2, 0.3) }
  const after = { 'answer/seg_rate': of(1, 1, 1), 'caption/meteor': of(0.4, 0.5, 0.6) }
  for (const line of comparisonTable(before, after, 19).split('\n')) assert.ok(line.length <= 80, line)
})

test('one record is shown without an interval, and below 20 records the table says that intervals mean little', () => {
  assert.equal(
    evaluationTable({ x: { a: alone(0.433) } }, 1),
    'metric  x [95 %]\na       0.433\n\none record: no interval',
  )
  const last = (records: number) =>
    evaluationTable({ x: { a: of(0, 0.5, 1) } }, records)
      .split('\n')
      .at(-1)
  assert.equal(last(19), '19 records: an interval of fewer than 20 means little')
  assert.equal(last(20), 'a       0.500 [0.000, 1.000]')
  const rows = comparisonTable({ a: alone(0.433) }, { a: alone(0.4344) }, 1).split('\n')
  assert.match(rows[1]!, /^a +0\.433 +0\.434 +\+0\.001 +no$/)
  assert.equal(rows.at(-1), 'one record: no interval')
})

test('a run ends with before, after and change, with the only evaluation it has, or with none', () => {
  const [before, after] = [{ a: of(0, 0.2, 0.3) }, { a: of(0.1, 0.25, 0.4) }]
  assert.match(
    evaluations({ before, after, evaluated: 64 }).join('\n'),
    /before .* after .* change .*\na .*\+0\.050 +no\n/,
  )
  assert.match(evaluations({ before: null, after, evaluated: 64 }).join('\n'), /^\nmetric +after \[95 %\]\na +0\.250/)
  assert.deepEqual(evaluations({ before: null, after: null, evaluated: 0 }), [])
})
