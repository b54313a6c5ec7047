import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Outcome } from '../../../tests/support/judge-faults.ts'

test('4,000 pairs with 20 % faults: every pair is accounted for, each score is the true one or none', async () => {
  const script = fileURLToPath(new URL('../../../tests/support/judge-faults.ts', import.meta.url))
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', script], { maxBuffer: 1 << 26 })
  const outcome = JSON.parse(stdout) as Outcome
  const pairs = outcome.rows.flat()
  assert.equal(pairs.length, 4_000)
  assert.ok(
    pairs.every((p) => p.truth > 0.3),
    'a score of 0 would be a fault',
  )
  for (const p of pairs) assert.ok(p.judge === null || p.judge === p.truth, `${p.judge}, not ${p.truth}`)
  for (const group of outcome.rows) {
    const lost = group.some((p) => p.judge === null)
    for (const p of group) {
      assert.deepEqual(p.dropped, lost ? ['judge'] : [])
      assert.ok(Math.abs(p.total! - (lost ? p.meteor! : 0.25 * p.meteor! + 0.75 * p.truth)) < 1e-12)
    }
  }
  const unjudged = pairs.filter((p) => p.judge === null).length
  assert.deepEqual([outcome.judged, outcome.unjudged], [4_000 - unjudged, unjudged])
  assert.ok(unjudged > 0 && unjudged < 2000, `${unjudged} pairs without a judge`)
  assert.ok(outcome.injected > 200 && outcome.calls > 1000, `${outcome.injected} faults in ${outcome.calls} calls`)
})
