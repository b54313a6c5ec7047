// Code of TypeScript is kept only where nobody else can write.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { hasOwnCache } from '../../bin/own-cache.mjs'
import { root } from './record.mjs'

const name = `tsx-${process.getuid()}`

/** A separate temporary folder, with the folder of tsx as the case makes it. */
function temporary(t, make) {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-own-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  make(folder, join(folder, name))
  return folder
}

test('a folder of our own is used, and created for this user alone if it is missing', (t) => {
  const folder = temporary(t, () => undefined)
  assert.equal(hasOwnCache(folder), true)
  assert.equal(statSync(join(folder, name)).mode & 0o777, 0o700)
  assert.equal(hasOwnCache(folder), true)
})

test('a folder that others can write to, that is theirs, or that leads elsewhere is not used', (t) => {
  const cases = {
    'others may write': (_, path) => {
      mkdirSync(path)
      chmodSync(path, 0o777)
    },
    'a link': (folder, path) => {
      mkdirSync(join(folder, 'elsewhere'))
      symlinkSync('elsewhere', path)
    },
    'others may rename it': (folder, path) => {
      mkdirSync(path)
      chmodSync(folder, 0o777)
    },
    ...(process.getuid() === 0 && {
      theirs: (_, path) => {
        mkdirSync(path)
        chownSync(path, 65534, 65534)
      },
    }),
  }
  for (const [what, make] of Object.entries(cases)) assert.equal(hasOwnCache(temporary(t, make)), false, what)
})

test('the command line keeps no code in such a folder', (t) => {
  const folder = temporary(t, (_, path) => {
    mkdirSync(path)
    chmodSync(path, 0o777)
  })
  const { TSX_DISABLE_CACHE, ...env } = process.env
  const started = spawnSync(process.execPath, [join(root, 'bin/roundtrip.mjs'), '--version'], {
    encoding: 'utf8',
    env: { ...env, TMPDIR: folder },
  })
  assert.equal(started.status, 0, started.stderr)
  assert.deepEqual(readdirSync(join(folder, name)), [])
})
