import assert from 'node:assert/strict'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import {
  atomicWrite,
  diskTrouble,
  hashFile,
  humanBytes,
  lackOfRoom,
  replaceFile,
  sha256,
  temporaryFolder,
} from './files.ts'

const folder = mkdtempSync(join(tmpdir(), 'core-files-'))
after(() => rmSync(folder, { recursive: true, force: true }))
const failed = (code: string, cause?: unknown) => Object.assign(new Error('it failed', { cause }), { code })

test('no room and a disk that misbehaves are told apart, through errors that carry others; the rest is neither', () => {
  const quota = Object.assign(new Error('unknown'), { code: 'Unknown system error -122', errno: -122 })
  const inside = new Error('saving', { cause: new Error('writing', { cause: failed('ENOSPC') }) })
  for (const [error, words] of [
    [failed('ENOSPC'), 'the disk is full (ENOSPC)'],
    [failed('EDQUOT'), 'the disk quota is used up (EDQUOT)'],
    [quota, 'the disk quota is used up (EDQUOT)'],
    [failed('EFBIG'), 'the file size limit is reached (EFBIG)'],
    [inside, 'the disk is full (ENOSPC)'],
  ] as const)
    assert.deepEqual([lackOfRoom(error), diskTrouble(error)], [words, words])
  for (const code of ['EIO', 'EROFS', 'ESTALE', 'ENODEV', 'ETIMEDOUT']) {
    assert.equal(lackOfRoom(failed(code)), null, code)
    assert.match(diskTrouble(failed(code))!, new RegExp(`disk|share.*\\(${code}\\)`))
  }
  for (const other of [failed('ENOENT'), failed('toString'), new Error('none'), null, 'text'])
    assert.equal(diskTrouble(other), null, String(other))
})

test('a file that cannot be written is named with the reason, not its temporary file', () => {
  writeFileSync(join(folder, 'plain'), '')
  assert.throws(
    () => atomicWrite(join(folder, 'none', 'a.txt'), ''),
    /none\/a\.txt: expected a file that can be written, got its folder does not exist \(ENOENT\)$/,
  )
  assert.throws(
    () => atomicWrite(join(folder, 'plain', 'a.txt'), ''),
    /plain\/a\.txt: expected .* a part of its path is a file \(ENOTDIR\)$/,
  )
  rmSync(join(folder, 'plain'))
})

test('a file that is replaced is the old one until the new one is whole; a failed writer leaves nothing behind', () => {
  const path = join(folder, 'a.txt')
  atomicWrite(path, 'old')
  const broken = (fd: number) => {
    writeFileSync(fd, 'half')
    assert.equal(readFileSync(path, 'utf8'), 'old')
    throw failed('ENOSPC')
  }
  assert.throws(() => replaceFile(path, broken), /a\.txt: expected a disk with room, got the disk is full/)
  const readOnly = () => replaceFile(path, () => assert.fail(failed('EROFS')))
  assert.throws(
    readOnly,
    /expected a disk that can be written, got the disk can only be read now.*\. repair it, then start/,
  )
  assert.deepEqual([readFileSync(path, 'utf8'), readdirSync(folder)], ['old', ['a.txt']])
  atomicWrite(path, 'new')
  assert.deepEqual([readFileSync(path, 'utf8'), readdirSync(folder)], ['new', ['a.txt']])
})

test('a device or a folder is not replaced by a file', () => {
  symlinkSync('/dev/null', join(folder, 'null'))
  mkdirSync(join(folder, 'inside'))
  assert.throws(() => atomicWrite(join(folder, 'null'), 'x'), /expected a regular file, got a device/)
  assert.throws(() => atomicWrite(join(folder, 'inside'), 'x'), /expected a regular file, got a folder/)
})

test('the hash of a file longer than a piece is that of its bytes', () => {
  const bytes = new Uint8Array((1 << 20) + 77).map((_, i) => i % 251)
  writeFileSync(join(folder, 'long'), bytes)
  assert.equal(hashFile(join(folder, 'long')), sha256(bytes))
})

test('bytes for people', () => {
  const sizes = [0, 1023, 1024, 9.99 * 1024, 10 * 1024, 1024 ** 2, 1024 ** 3, 1024 ** 4, 5000 * 1024 ** 4]
  const words = ['0 B', '1023 B', '1.00 KiB', '9.99 KiB', '10.0 KiB', '1.00 MiB', '1.00 GiB', '1.00 TiB', '5000.0 TiB']
  assert.deepEqual(sizes.map(humanBytes), words)
})

test('a temporary folder is ours alone; if none can be created, the error names TMPDIR and says what to do', (t) => {
  const folder = temporaryFolder('test')
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  assert.equal(statSync(folder).mode & 0o777, 0o700)

  const before = process.env.TMPDIR
  t.after(() => {
    if (before === undefined) delete process.env.TMPDIR
    else process.env.TMPDIR = before
  })
  process.env.TMPDIR = join(folder, 'missing')
  assert.throws(
    () => temporaryFolder('test'),
    /missing: TMPDIR: expected a folder to write temporary files to, got ENOENT.*\. make it writable, or set TMPDIR/,
  )
})
