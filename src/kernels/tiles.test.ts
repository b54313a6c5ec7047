import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatesOfBlock, partsOfDown } from './tiles.ts'

test('blocks cover all features of gate and up, in as few rounds as their sums allow', () => {
  for (const processors of [114, 132])
    for (const inner of [8, 1000, 4864, 8960, 9728, 11_008, 14_336, 18_944, 27_648]) {
      const features = gatesOfBlock(inner, processors)
      const blocks = Math.ceil(inner / features)
      const rounds = Math.ceil(blocks / processors)
      assert.ok(features % 8 === 0 && features <= 112, `${features} features`)
      assert.equal(rounds, Math.ceil(inner / (112 * processors)), `${inner} features of ${processors} processors`)
      assert.ok((blocks - 1) * features < inner, 'the last block has some')
    }
  assert.equal(gatesOfBlock(11_008, 132), 88)
})

test('parts of the columns fill the GPU in one round where its blocks fit, 8 parts at most', () => {
  assert.deepEqual(
    [2048, 896, 3584, 4096, 5120, 64, 12_288].map((hidden) => partsOfDown(hidden, 132)),
    [4, 8, 2, 2, 1, 8, 1],
  )
})
