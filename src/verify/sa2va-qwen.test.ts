import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { readAll, writeSafetensors } from '../checkpoint/index.ts'
import { findGolden, verifyGolden } from './index.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')

function copy(t: TestContext, set: string): string {
  const dir = mkdtempSync(join(tmpdir(), 'verify-qwen-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  cpSync(join(golden, set), dir, { recursive: true })
  return dir
}

for (const [set, least] of [
  ['sa2va-qwen2_5_vl-tiny', 310],
  ['sa2va-qwen3vl-tiny', 345],
] as const) {
  test(`${set} is recognized by its content, and every quantity is inside its limit`, async () => {
    const { found } = findGolden(join(golden, set))
    assert.deepEqual(found, [{ path: join(golden, set), kind: 'sa2va-qwen' }])
    const rows = await verifyGolden(found[0]!)
    assert.deepEqual(
      rows.filter((r) => !r.pass),
      [],
    )
    assert.ok(rows.length >= least, `${rows.length} rows`)
  })
}

test("values that are not the reference's fail by their names, and nothing else does", async (t) => {
  const dir = copy(t, 'sa2va-qwen3vl-tiny')
  const path = join(dir, 'golden.safetensors')
  const all = readAll(path)
  const names = [
    'vis.deepstack1',
    'seg.rope_cos',
    'seg.layer_in2',
    'seg.state_released',
    'sam.fpn1',
    'twice.state_released',
  ]
  for (const name of names) {
    const bytes = all.get(name)!.data
    for (let i = 3; i < bytes.length; i += 4) bytes[i] = bytes[i]! ^ 0x02
  }
  writeSafetensors(
    path,
    Array.from(all, ([name, entry]) => ({ name, ...entry })),
  )
  const rows = await verifyGolden({ path: dir, kind: 'sa2va-qwen' })
  assert.deepEqual(
    rows.filter((r) => !r.pass).map((r) => r.name),
    ['vis.deepstack1', 'seg.rope_cos', 'seg.layer_in2', 'seg.state_released', 'sam.fpn1', 'twice.state_released'],
  )
})

test('a converted folder, with the name of the base at the top and stale language keys, gives the same numbers', async (t) => {
  const dir = copy(t, 'sa2va-qwen2_5_vl-tiny')
  const raw = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8'))
  raw.architectures = ['Qwen2_5_VLForConditionalGeneration']
  raw.vocab_size = 7
  raw.hidden_size = 8
  writeFileSync(join(dir, 'config.json'), JSON.stringify(raw))
  const rows = await verifyGolden(findGolden(dir).found[0]!)
  assert.ok(rows.length > 300 && rows.every((r) => r.pass))
})
