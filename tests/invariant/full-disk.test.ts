// A real file system of a few KiB: what does not fit is an error, and no torn file looks whole.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { command } from '../../src/cli/score.ts'
import { atomicWrite, writeAll } from '../../src/core/index.ts'
import { makeScenes } from '../../src/data/index.ts'
import { JsonLines } from '../../src/tracking/index.ts'

const kib = 16

/** A mounted tmpfs of `kib` KiB; null, and the test is skipped, where mounting is not allowed. */
function smallDisk(t: TestContext): string | null {
  const disk = mkdtempSync(join(tmpdir(), 'roundtrip-disk-'))
  t.after(() => {
    spawnSync('umount', ['-l', disk])
    rmSync(disk, { recursive: true, force: true })
  })
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${kib}k`, 'none', disk])
  if (status !== 0) {
    t.skip('mounting a tmpfs needs root')
    return null
  }
  return disk
}

test('writeAll: all bytes or an error, at the end and at a position', (t) => {
  const disk = smallDisk(t)
  if (disk === null) return
  const fd = openSync(join(disk, 'a'), 'w+')
  t.after(() => closeSync(fd))
  writeAll(fd, 'abc')
  writeAll(fd, Buffer.from('XY'), 1)
  assert.equal(readFileSync(join(disk, 'a'), 'utf8'), 'aXY')
  assert.throws(() => writeAll(fd, Buffer.alloc((kib + 4) * 1024), 3), { code: 'ENOSPC' })
})

test('atomicWrite: a full disk is named with the file and what to do, and the old file stays', (t) => {
  const disk = smallDisk(t)
  if (disk === null) return
  const path = join(disk, 'summary.json')
  atomicWrite(path, 'old')
  const message = `${path}: expected a disk with room, got the disk is full (ENOSPC). make room, then start the same command again`
  assert.throws(() => atomicWrite(path, Buffer.alloc((kib + 4) * 1024)), { code: 'ENOSPC', message })
  assert.deepEqual([readdirSync(disk), readFileSync(path, 'utf8')], [['summary.json'], 'old'])
})

test('score: a disk that has no room for the last line ends with an error and leaves no scores', async (t) => {
  const disk = smallDisk(t)
  if (disk === null) return
  const source = mkdtempSync(join(tmpdir(), 'roundtrip-pairs-'))
  t.after(() => rmSync(source, { recursive: true, force: true }))
  const id = 'x'.repeat(2000) // ten lines of 2 KiB do not fit, the ninth fits in part
  const lines = Array.from({ length: 10 }, () => JSON.stringify({ id, reference: 'a cup', hypothesis: 'a cup' }))
  writeFileSync(join(source, 'in.jsonl'), lines.join('\n'))
  const out = join(disk, 'out.jsonl')
  const args = ['--metric', 'meteor', '--in', join(source, 'in.jsonl'), '--out', out]
  await assert.rejects(
    command().parseAsync(args, { from: 'user' }),
    /out\.jsonl: expected room for all scores, got the disk is full/,
  )
  assert.deepEqual(readdirSync(disk), [])
})

test('make-scenes: a full disk is named with the folder, and nothing of the folder is left', async (t) => {
  const disk = smallDisk(t)
  if (disk === null) return
  for (const format of ['gar-arrow', 'jsonl'] as const) {
    const out = join(disk, 'scenes')
    await assert.rejects(
      makeScenes({ n: 200, out, format, size: 56 }),
      /scenes: expected a disk with room, got the disk is full/,
    )
    assert.deepEqual(readdirSync(disk), [])
  }
})

test('make-scenes writes into a folder with other files, a model among them, and leaves them there', async (t) => {
  const out = mkdtempSync(join(tmpdir(), 'roundtrip-beside-'))
  t.after(() => rmSync(out, { recursive: true, force: true }))
  writeFileSync(join(out, 'config.json'), '{}')
  assert.equal(await makeScenes({ n: 2, out, format: 'jsonl', size: 56 }), 2)
  assert.deepEqual(readdirSync(out).sort(), ['config.json', 'images', 'scenes.jsonl'])
})

test('a deleted log that does not fit again is an error, and no half of it is put back', (t) => {
  const disk = smallDisk(t)
  if (disk === null) return
  const path = join(disk, 'events.jsonl')
  const log = new JsonLines(path)
  t.after(() => log.close())
  for (let i = 0; i < 5; i++) log.append({ text: 'x'.repeat(2000) }) // 10 KiB: the open file holds them
  rmSync(path)
  assert.throws(() => log.putBack(), /events\.jsonl: expected room for \d+ more bytes, got the disk is full \(ENOSPC\)/)
  assert.ok(!existsSync(path))
  log.append({ text: 'later' }) // the log is still open
})
