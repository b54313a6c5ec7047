import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { root } from '../../scripts/lib/record.mjs'
import { mutants } from './table.mjs'

test('every mutant finds its text in its file, changes it, and its test exists', () => {
  const broken = mutants.filter(({ file, text, replacement, test, reason }) => {
    const isFound = existsSync(join(root, file)) && readFileSync(join(root, file), 'utf8').includes(text)
    return !isFound || text === '' || text === replacement || !existsSync(join(root, test)) || !reason
  })
  assert.ok(mutants.length >= 440, `${mutants.length} mutants`)
  assert.deepEqual(broken, [])
})
