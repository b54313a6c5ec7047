import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { findGolden } from './golden.ts'
import { verifyMaskPrompt } from './sam2-mask-prompt.ts'

const folder = join(import.meta.dirname, '../../tests/fixtures/golden')

test('clicks with the mask of an earlier click as prompt give the reference masks', () => {
  const rows = verifyMaskPrompt(join(folder, 'sam2-mask-prompt.json'))
  assert.equal(rows.length, 24)
  assert.deepEqual(
    rows.filter((r) => !r.pass || r.rel > 1e-5).map((r) => `${r.name}: ${r.rel} ${r.detail}`),
    [],
  )
})

test('verify finds the points and mask prompt sets by their content', () => {
  const found = findGolden(folder).found.map((g) => g.kind)
  assert.ok(found.includes('points') && found.includes('sam2-mask-prompt'), String(found))
})

test('the tensors of a set name it as well as its cases do', () => {
  const [json, tensors] = ['json', 'safetensors'].map(
    (kind) => findGolden(join(folder, `sam2-mask-prompt.${kind}`)).found,
  )
  assert.deepEqual(tensors, json)
})
