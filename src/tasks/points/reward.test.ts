import assert from 'node:assert/strict'
import test from 'node:test'
import { settledRewards } from './reward.ts'

test('a spread that is rounding teaches nothing: such rewards become their mean; any other stays as it is', () => {
  const nearly = settledRewards([0.5, 0.5 + 2e-7, 0.5 - 2e-7])
  assert.equal(new Set(nearly).size, 1)
  assert.ok(Math.abs(nearly[0]! - 0.5) < 1e-12, `${nearly[0]}`)
  const differ = [0.5, 0.5 + 4e-6, 0.5]
  assert.deepEqual(settledRewards(differ), differ)
  assert.deepEqual([settledRewards([0.3]), settledRewards([])], [[0.3], []])
})
