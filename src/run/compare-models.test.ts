import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { packageRoot } from '../core/index.ts'
import { compareModels, compareRows, type RecordRow } from './compare-models.ts'
import { resolveRun } from './config.ts'

interface Row {
  id: string
  image: string
  before: number
  after: number
  union: number
  both: [number, number]
  part: boolean
}

interface Expected {
  change: number
  low: number
  high: number
}

const path = fileURLToPath(new URL('../../tests/fixtures/compare/paired-bootstrap.json', import.meta.url))
const stored = JSON.parse(readFileSync(path, 'utf8')) as { rows: Row[]; expected: Record<string, Expected> }

/** The table's rows under one model; `byImage`: resampled by image. */
const rowsOf = (side: 0 | 1, byImage: boolean): RecordRow[] =>
  stored.rows.map(({ id, image, before, after, union, both, part }) => {
    const score = side === 0 ? before : after
    const mean = [score, 1] as const
    const ratios: RecordRow['ratios'] = { mean, ratio: [both[side], union], part: part ? mean : null }
    return { id, key: id, unit: byImage ? image : id, ratios, shown: [] }
  })

test('intervals are those of an independent paired bootstrap within 1 %', () => {
  const [byRecord, byImage] = [false, true].map((is) => compareRows(rowsOf(0, is), rowsOf(1, is), 'mean', 7).metrics)
  for (const [name, want] of Object.entries(stored.expected)) {
    const [metric, , unit] = name.split(' ') as [string, string, string]
    const { change } = (unit === 'image' ? byImage : byRecord)![metric]!
    assert.ok(Math.abs(change.mean - want.change) < 1e-9, `${name}: ${change.mean} and ${want.change}`)
    const width = want.high - want.low
    for (const end of ['low', 'high'] as const)
      assert.ok(Math.abs(change[end] - want[end]) < 0.01 * width, `${name} ${end}: ${change[end]} and ${want[end]}`)
  }
})

test('wins, losses and ties are counted on the main metric; records of one side, or without the metric, are left out', () => {
  const row = (id: string, value: number | null): RecordRow => {
    return { id, key: id, unit: id, ratios: { m: value === null ? null : [value, 2], other: [1, 1] }, shown: [] }
  }
  const before = [row('a', 1), row('b', 2), row('c', 1), row('d', null), row('only before', 1)]
  const after = [row('a', 2), row('b', 1), row('c', 1), row('d', 1), row('only after', 1)]
  const { records, wins, losses, ties, changes, metrics } = compareRows(before, after, 'm', 1)
  assert.deepEqual([records, wins, losses, ties], [4, 1, 1, 1])
  assert.deepEqual(
    changes.map(({ id, before: a, after: b, change }) => [id, a, b, change]),
    [
      ['a', 0.5, 1, 0.5],
      ['c', 0.5, 0.5, 0],
      ['b', 1, 0.5, -0.5],
    ],
  )
  assert.equal(metrics.m!.after, 5 / 8)
  assert.equal(metrics.m!.before, 4 / 6)
})

test('a comparison that was stopped is none, and the second model is not opened', async () => {
  const model = join(packageRoot(), 'assets', 'miniature')
  const config = resolveRun({ model, dataPath: 'scenes:4', device: 'cpu', data: { workers: 0 } })
  const options = { adapter: null, ema: false, records: null }
  const sides = [
    { config, options },
    { config: { ...config, model: 'none' }, options },
  ] as const
  assert.equal(await compareModels(sides, { progress: () => undefined, stopping: () => true }), null)
})
