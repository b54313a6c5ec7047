import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { openSa2VA } from '../../src/models/index.ts'
import { configOf, tensorShapes } from './checkpoint-shapes.ts'

const elements = (shapes: Map<string, readonly number[]>) =>
  [...shapes.values()].reduce((sum, shape) => sum + shape.reduce((a, b) => a * b, 1), 0)

test('the named sizes have the tensors and elements of the released models', () => {
  const four = tensorShapes(configOf('4b', 'bfloat16'))
  assert.deepEqual([four.size, elements(four)], [1685, 3_941_809_714])
  const one = tensorShapes(configOf('1b', 'bfloat16'))
  assert.deepEqual([one.size, elements(one)], [1541, 1_163_665_714])
})

test('a written folder opens, in shards, and the same seed gives the same weights', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'make-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const script = join(import.meta.dirname, '../make-checkpoint.ts')
  const make = (name: string) =>
    execFileSync(
      process.execPath,
      ['--import', 'tsx', script, join(dir, name), '--shape', 'tiny', '--shard-bytes', '900000'],
      { stdio: 'pipe' },
    )
  make('a')
  make('b')
  const [a, b] = [openSa2VA(join(dir, 'a')), openSa2VA(join(dir, 'b'))]
  const other = b.model.parameters()
  for (const [name, p] of a.model.parameters()) assert.deepEqual(p.array(), other.get(name)!.array(), name)
  assert.equal(a.model.placement.dtype, 'bfloat16')
  assert.equal(a.prompter.tokenizer.vocabSize, 512)
  for (const p of [...a.model.parameters().values(), ...other.values()]) p.dispose()
})
