import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { verifyPoints } from './points.ts'

const path = join(import.meta.dirname, '../../tests/fixtures/golden/points.jsonl')

test('test 5 of the point task: all lines of points.jsonl are recomputed: parser, frames, derived points, rewards, clicks, filter, advantages', () => {
  const rows = verifyPoints(path)
  assert.equal(rows.length, 870)
  assert.deepEqual(
    rows.filter((r) => !r.pass).map((r) => `${r.name}: ${r.detail}`),
    [],
  )
})
