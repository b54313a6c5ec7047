// The rows of `npm run faults` that need no separate processes; the command runs them all.
import assert from 'node:assert/strict'
import test, { after } from 'node:test'
import { Bench } from './bench.ts'
import { showRow } from './row.ts'
import { rows } from './rows.ts'

const bench = new Bench()
after(() => bench.close())

for (const row of rows.filter((r) => r.quick)) {
  test(`${row.number} ${row.name}: ${row.fault}`, { timeout: 10 * 60_000 }, async (t) => {
    const { state, seen } = await showRow(row, bench)
    if (state === 'not run') return t.skip(seen)
    assert.equal(state, 'passed', seen)
  })
}

test('rows have different names', () => {
  assert.equal(new Set(rows.map((row) => row.name)).size, rows.length)
})
