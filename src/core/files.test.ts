import assert from 'node:assert/strict'
import { rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { temporaryFolder } from './files.ts'

test('a temporary folder is ours alone; where none can be made, TMPDIR is named and what to do', (t) => {
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
