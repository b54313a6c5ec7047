import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stream, streamId } from '../../core/index.ts'
import { maskFromDense } from '../../mask/index.ts'
import { squaredDistances } from './distance.ts'
import { maskDifference, randomNegatives } from './places.ts'

/** Every pixel against every other one. */
function bruteForce(inside: Uint8Array, width: number, height: number, edge: boolean): number[] {
  return Array.from(inside, (on, i) => {
    if (!on) return 0
    const [x, y] = [i % width, Math.floor(i / width)]
    let best = 2 ** 40
    for (let v = -1; v <= height; v++)
      for (let u = -1; u <= width; u++) {
        const beyond = u < 0 || v < 0 || u === width || v === height
        if (beyond ? edge : !inside[v * width + u]) best = Math.min(best, (x - u) ** 2 + (y - v) ** 2)
      }
    return best
  })
}

test('squared distances equal a search over all pixels, with and without an edge', () => {
  const random = stream(streamId.test, 'distances')
  for (let i = 0; i < 120; i++) {
    const [width, height] = [1 + random.below(14), 1 + random.below(11)]
    const share = random.pick([0, 0.1, 0.5, 0.9, 1])
    const inside = Uint8Array.from({ length: width * height }, () => (random.uniform() < share ? 1 : 0))
    for (const edge of [true, false])
      assert.deepEqual([...squaredDistances(inside, width, height, edge)], bruteForce(inside, width, height, edge))
  }
})

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
