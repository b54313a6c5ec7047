import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stream, streamId } from '../../core/index.ts'
import { maskDifference, maskFromDense } from '../../mask/index.ts'
import { randomNegatives } from './click-geometry.ts'

test('random negatives are distinct pixels outside the object, and a stream gives the same ones again', () => {
  const dense = Uint8Array.from({ length: 400 }, (_, i) => (i % 20 > 5 && i % 20 < 12 && i > 100 && i < 300 ? 1 : 0))
  const target = maskFromDense(dense, 20, 20)
  const make = () => randomNegatives(target, 5, stream(streamId.test, 'negatives', 3))
  const points = make()
  assert.deepEqual(points, make())
  assert.equal(new Set(points.map(String)).size, points.length)
  for (const [x, y] of points) assert.equal(dense[y * 20 + x], 0)
})

test('the difference of two masks has the pixels of the first alone', () => {
  const a = maskFromDense(Uint8Array.of(1, 1, 0, 0, 1, 0), 2, 3)
  const b = maskFromDense(Uint8Array.of(0, 1, 1, 0, 0, 0), 2, 3)
  assert.deepEqual(maskDifference(a, b), maskFromDense(Uint8Array.of(1, 0, 0, 0, 1, 0), 2, 3))
})
