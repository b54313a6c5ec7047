import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stream } from '../core/index.ts'
import { tidy } from './scope.ts'
import { uniformTensor } from './uniform.ts'

test('numbers of a tensor are those of the stream, one by one', () => {
  for (const [seed, shape, bound] of [
    [0, [7, 13], 1],
    [42, [1], 0.25],
    [2 ** 40 + 3, [101, 99], 1 / Math.sqrt(99)],
  ] as const) {
    const n = shape.reduce<number>((a, b) => a * b, 1)
    const random = stream(seed, 6, 'layers.0.q_proj')
    const expected = Float32Array.from({ length: n }, (_, i) => (2 * random.uniformAt(i) - 1) * bound)
    const got = tidy(() => uniformTensor(stream(seed, 6, 'layers.0.q_proj'), shape, bound).array())
    assert.deepEqual(got, expected)
  }
})
