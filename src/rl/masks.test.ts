import assert from 'node:assert/strict'
import { test } from 'node:test'
import { completionMasks } from './masks.ts'

const options = { eos: new Set([9]), pad: 0, maskTruncated: true }

test('a row ends with its end token, and is truncated without one unless it is padded or was stopped', () => {
  const masks = completionMasks(
    [
      [5, 9, 7],
      [5, 6, 7],
      [5, 6, 0],
    ],
    options,
  )
  assert.deepEqual(masks.lengths, [2, 3, 3])
  assert.deepEqual(masks.truncated, [false, true, false])
  assert.deepEqual([...masks.lossMask], [1, 1, 0, 0, 0, 0, 1, 1, 1])
  assert.equal(masks.numItems, 5)
  const stopped = completionMasks([[5, 6, 7]], { ...options, finished: [true] })
  assert.deepEqual([stopped.truncated, stopped.numItems], [[false], 3])
})
