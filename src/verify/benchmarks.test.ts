import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { verifyBenchmarks } from './benchmarks.ts'
import { findGolden } from './golden.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden/benchmarks-tiny', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-verify-benchmarks-'))
after(() => rmSync(scratch, { recursive: true, force: true }))

function copy(name: string): string {
  const dir = join(scratch, name)
  cpSync(golden, dir, { recursive: true })
  return dir
}

function edit(file: string, change: (text: string) => string): void {
  const before = readFileSync(file, 'utf8')
  const after = change(before)
  assert.notEqual(after, before)
  writeFileSync(file, after)
}

const failures = async (dir: string) => (await verifyBenchmarks(dir)).filter((row) => !row.pass).map((row) => row.name)

test('benchmarks-tiny is known by its content, and every quantity of it is met', async () => {
  const dir = copy('other-name')
  assert.deepEqual(findGolden(dir).found, [{ path: dir, kind: 'benchmarks' }])
  assert.deepEqual(await failures(dir), [])
})

test('one changed prediction fails the metrics of its splits in every protocol, and nothing else', async () => {
  const dir = copy('prediction')
  edit(join(dir, 'predictions.jsonl'), (text) =>
    text.replace(/^(\{"benchmark": "refcocog", "split": "val".*"rle": )\{.*\}\}$/m, '$1null}'),
  )
  const failed = await failures(dir)
  assert.ok(failed.includes('refcocog.val.sa2va.sentences') && failed.includes('refcocog.val.union.cIoU'))
  assert.deepEqual([...new Set(failed.map((name) => name.split('.').slice(0, 2).join('.')))], ['refcocog.val'])
})

test('a moved polygon fails the targets', async () => {
  const dir = copy('polygon')
  edit(join(dir, 'reason_seg/ReasonSeg/val/9211820_7_o.json'), (text) => text.replace('49.42', '59.42'))
  assert.ok((await failures(dir)).includes('reasonseg.targets'))
})
