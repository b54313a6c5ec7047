import assert from 'node:assert/strict'
import { copyFileSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fixtures, testFolder } from '../../../tests/support/data.ts'
import { FilePool } from '../files.ts'
import { scanShard } from './messages.ts'
import { RowReader } from './rows.ts'

const folder = testFolder()
const expected = JSON.parse(readFileSync(join(fixtures, 'shapes.json'), 'utf8')) as Record<string, unknown>[]

async function readAll(path: string): Promise<Record<string, unknown>[]> {
  const pool = new FilePool()
  const reader = await RowReader.open(path, pool, await scanShard(path))
  const names = reader.schema.fields.map((f) => f.name)
  const rows: Record<string, unknown>[] = []
  for (let i = 0; i < reader.rows; i++) {
    const row = await reader.row(i, names)
    if (row.data instanceof Uint8Array) row.data = Buffer.from(row.data).toString('hex')
    rows.push(row)
  }
  await pool.close()
  return rows
}

for (const name of ['shapes.arrow', 'shapes-file.arrow']) {
  test(`${name}: every row of pyarrow's column types, nulls and sliced batches reads as pyarrow says`, async () => {
    assert.deepEqual(await readAll(join(fixtures, name)), expected)
  })
}

test('a shard cut at any byte is refused with the end of its last complete message, or ends at a message', async () => {
  const whole = join(fixtures, 'shapes.arrow')
  const size = statSync(whole).size
  const { batches, dictionaries } = await scanShard(whole)
  const starts = [0, ...[...dictionaries, ...batches].map((entry) => entry.metaOffset - 8)]
  const path = join(folder, 'cut.arrow')
  let refused = 0
  for (let cut = size - 1; cut > 0; cut -= 97) {
    copyFileSync(whole, path)
    truncateSync(path, cut)
    const error = await scanShard(path).then(
      () => null,
      (e: Error) => e,
    )
    if (!error) continue
    refused++
    assert.match(error.message, /cut\.arrow: byte \d+: expected .* the file ends inside/)
    const at = Number(/byte (\d+)/.exec(error.message)![1])
    const last = Math.max(...starts.filter((start) => start < cut))
    assert.ok(at === last || at > Math.max(...starts), `${at} for a cut at ${cut}`)
  }
  assert.ok(refused > 100)
})

test('an empty file and a Git LFS pointer are named for what they are', async () => {
  const empty = join(folder, 'empty.arrow')
  writeFileSync(empty, '')
  await assert.rejects(scanShard(empty), /empty\.arrow: .*0 bytes/)
  const pointer = join(folder, 'pointer.arrow')
  writeFileSync(pointer, 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n')
  await assert.rejects(scanShard(pointer), /pointer\.arrow: .*Git LFS pointer.*git lfs pull/)
  const other = join(folder, 'other.arrow')
  writeFileSync(other, 'this is a text of some length, not Arrow')
  await assert.rejects(scanShard(other), /other\.arrow/)
})
