import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Mismatch } from '../core/index.ts'
import { verifyMeteor, verifyPorter } from './meteor.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'verify-meteor-'))
after(() => rmSync(folder, { recursive: true }))

function write(name: string, lines: readonly object[]): string {
  const path = join(folder, name)
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
  return path
}

function readSome(name: string, count: number): Record<string, unknown>[] {
  const lines = readFileSync(join(golden, name), 'utf8')
    .split('\n')
    .slice(100, 100 + count)
  return lines.map((line) => JSON.parse(line))
}

test('both golden files verify in full', () => {
  const meteorRows = verifyMeteor(join(golden, 'meteor.jsonl'))
  assert.deepEqual(
    meteorRows.map((row) => [row.pass, row.detail]),
    Array(6).fill([true, '2000 rows']),
  )
  assert.deepEqual([meteorRows[0]!.abs, meteorRows[0]!.rel], [0, 0])
  const [stems] = verifyPorter(join(golden, 'porter.jsonl'))
  assert.deepEqual([stems!.pass, stems!.detail], [true, '5000 rows'])
})

test('one last bit, one count or one stem that differs is reported with its line', () => {
  const rows = readSome('meteor.jsonl', 20)
  const at = rows.findIndex((row) => (row.score as number) > 0.1)
  const score = rows[at]!.score as number
  rows[at]!.score = score + 2 ** (Math.floor(Math.log2(score)) - 52)
  rows[at]!.chunks = 99
  const failed = verifyMeteor(write('meteor.jsonl', rows)).filter((row) => !row.pass)
  assert.deepEqual(
    failed.map((row) => row.name),
    ['meteor score', 'meteor chunks'],
  )
  assert.ok(failed[0]!.abs > 0 && failed[0]!.abs < 1e-15)
  for (const row of failed)
    assert.match(row.detail!, new RegExp(`1 of 20 differ, first .*meteor.jsonl: line ${at + 1}: `))

  const [stems] = verifyPorter(
    write('porter.jsonl', [
      { word: 'dogs', stem: 'dog' },
      { word: 'cats', stem: 'cats' },
    ]),
  )
  assert.equal(stems!.pass, false)
  assert.match(stems!.detail!, /porter.jsonl: line 2: expected "cats", got "cat"/)
})

test('files of another layout are refused with place and field', () => {
  const field = (name: string) => (error: unknown) => error instanceof Mismatch && error.info.field === name
  assert.throws(() => verifyMeteor(write('a.jsonl', [{ reference: 'a' }])), field('hypothesis'))
  assert.throws(() => verifyMeteor(write('b.jsonl', [{ reference: 'a', hypothesis: 'a' }])), field('score'))
  assert.throws(() => verifyPorter(write('c.jsonl', [{ word: 1, stem: 'a' }])), field('word'))
  assert.throws(() => verifyPorter(write('d.jsonl', [])), Mismatch)
  assert.throws(() => verifyPorter(join(folder, 'absent.jsonl')), Mismatch)
  writeFileSync(join(folder, 'e.jsonl'), '{"word": \n')
  assert.throws(() => verifyPorter(join(folder, 'e.jsonl')), /e.jsonl: line 1: expected a JSON object/)
})
