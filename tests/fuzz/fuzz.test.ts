import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formats } from './formats/index.ts'
import { faults } from './formats/planted.ts'
import { runFormat } from './watch.ts'

const minute = 60_000

test('the fuzzer finds and names each kind of fault, and continues after it', { timeout: 20 * minute }, async () => {
  const results = await runFormat('planted', { n: faults.length, seed: 0, keep: '', jobs: 2, cpuSeconds: 5 })
  assert.deepEqual(
    results.map((r) => r.outcome),
    [...faults],
  )
})

for (const { name } of formats) {
  test(`${name}: 60 damaged files are read or refused with a clear message`, { timeout: 20 * minute }, async () => {
    const results = await runFormat(name, { n: 60, seed: 1, keep: '' })
    assert.equal(results.length, 60)
    assert.deepEqual(
      results.filter((r) => r.outcome !== 'read' && r.outcome !== 'refused'),
      [],
    )
    assert.ok(results.some((r) => r.outcome === 'read'))
  })
}
