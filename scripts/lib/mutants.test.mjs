import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'node:test'
import { mutants } from './mutants.mjs'
import { root } from './record.mjs'

test('every listed fault finds its text in the sources, and its test is there', () => {
  const lost = mutants.flatMap(([, what, file, text, replacement, tested]) => {
    const found = existsSync(join(root, file)) && readFileSync(join(root, file), 'utf8').includes(text)
    return found && text !== replacement && existsSync(join(root, tested)) ? [] : [`${what} (${file}, ${tested})`]
  })
  assert.ok(mutants.length >= 200, `${mutants.length} faults`)
  assert.deepEqual(lost, [])
})
