import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { stripElf } from './strip-elf.mjs'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-strip-'))

test('a program without its symbols is smaller, runs, and is the same when it is stripped again', (t) => {
  t.after(() => rmSync(folder, { recursive: true }))
  const source = join(folder, 'sum.cc')
  const program = join(folder, 'sum')
  writeFileSync(source, 'static int added(int a) { return a + 40; }\nint main(int n, char**) { return added(n); }\n')
  const compiled = spawnSync('g++', ['-g', '-O0', '-o', program, source], { encoding: 'utf8' })
  if (compiled.error) return t.skip('no g++ here')
  assert.equal(compiled.status, 0, compiled.stderr)
  const whole = readFileSync(program)
  const stripped = stripElf(whole)
  assert.ok(stripped.length < whole.length, `${stripped.length} of ${whole.length} bytes`)
  assert.ok(whole.includes('added') && !stripped.includes('added'), 'the name of a function')
  assert.deepEqual(stripElf(stripped), stripped)
  writeFileSync(program, stripped)
  chmodSync(program, 0o755)
  assert.equal(spawnSync(program, ['one']).status, 42)
  assert.throws(() => stripElf(Buffer.from('#!/bin/sh\n')), /expected a little-endian 64-bit ELF file/)
})
