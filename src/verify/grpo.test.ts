import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { fileURLToPath } from 'node:url'
import { expectNoLeak } from '../tensor/index.ts'
import { verifyGrpo, verifyMiscOptim } from './grpo.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden', import.meta.url))

test('every golden case holds in float64 (1e-10) and float32 (2e-5), gradients and metrics included, and leaves no tensor', () => {
  const rows = expectNoLeak(() => verifyGrpo(join(golden, 'grpo.json')))
  assert.deepEqual(
    rows.filter((r) => !r.pass),
    [],
  )
  assert.equal(new Set(rows.map((r) => r.name.split(' ')[0])).size, 107)
  assert.equal(rows.length, 185)
})

test('the AdamW trajectory and the schedules of torch and transformers are reproduced', () => {
  const rows = expectNoLeak(() => verifyMiscOptim(join(golden, 'misc')))
  assert.deepEqual(
    rows.filter((r) => !r.pass),
    [],
  )
  assert.equal(rows.length, 5)
})

test('a changed expectation, an unknown kind and an unknown option are failures, not silence', () => {
  const file = JSON.parse(readFileSync(join(golden, 'grpo.json'), 'utf8')) as {
    cases: { kind: string; input: { config?: object }; expected: { loss?: number } }[]
    count: number
  }
  const [first, second, third] = file.cases.filter((c) => c.kind === 'loss')
  first!.expected.loss! += 1e-9
  second!.kind = 'other'
  third!.input.config = { ...third!.input.config, made_up: 1 }
  file.cases = [first!, second!, third!]
  file.count = 3
  const path = join(mkdtempSync(join(tmpdir(), 'grpo-')), 'grpo.json')
  writeFileSync(path, JSON.stringify(file))
  const rows = verifyGrpo(path)
  assert.deepEqual(
    rows.map((r) => r.pass),
    [false, true, false, false, false],
  )
})
