import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { tooFewFiles } from '../../bin/open-files.mjs'
import { root } from './record.mjs'

const limits = (open) => `Limit  Soft Limit  Hard Limit  Units\nMax open files            ${open}     4096    files\n`

test('a limit of open files that Node cannot load modules under is refused with a clear message', () => {
  assert.match(
    tooFewFiles(limits(64)),
    /open files: expected a limit of at least 256, got 64\. raise it: ulimit -n 1024/,
  )
  for (const open of [256, 1024, 'unlimited']) assert.equal(tooFewFiles(limits(open)), null, String(open))
  assert.equal(tooFewFiles(''), null)
})

test('the command says so before it loads anything', () => {
  const program = join(root, 'bin', 'roundtrip.mjs')
  const { status, stderr } = spawnSync('sh', ['-c', 'ulimit -n 64; exec "$0" "$1" --help', process.execPath, program], {
    encoding: 'utf8',
  })
  assert.equal(status, 1)
  assert.match(stderr, /^error: roundtrip: open files: expected a limit of at least 256, got 64\./)
})
