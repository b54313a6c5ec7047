import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stream, streamId } from '../core/index.ts'
import { deepestPixel, errorCentre } from './click.ts'
import { squaredDistances } from './distance.ts'
import { maskFromDense } from './mask.ts'

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

test('squared distances equal a search over all pixels, with and without an edge, and so does the deepest pixel', () => {
  const random = stream(streamId.test, 'distances')
  for (let i = 0; i < 120; i++) {
    const [width, height] = [1 + random.below(14), 1 + random.below(11)]
    const share = random.pick([0, 0.1, 0.5, 0.9, 1])
    const inside = Uint8Array.from({ length: width * height }, () => (random.uniform() < share ? 1 : 0))
    for (const edge of [true, false])
      assert.deepEqual([...squaredDistances(inside, width, height, edge)], bruteForce(inside, width, height, edge))
    const all = bruteForce(inside, width, height, true)
    const [at, d2] = [all.indexOf(Math.max(...all)), Math.max(...all)]
    const expected = d2 > 0 ? { point: [at % width, Math.floor(at / width)], d2 } : null
    assert.deepEqual(deepestPixel(inside, width, height), expected)
  }
})

const mask = (rows: string[]) => maskFromDense(Uint8Array.from(rows.join(''), Number), rows.length, rows[0]!.length)
const target = mask(['0000000', '0111000', '0111000', '0111000', '0000000'])

test('the first click is the deepest pixel of the object, later ones are in the deeper error', () => {
  assert.deepEqual(errorCentre(target, null), { point: [2, 2], label: 1, d2: 4 })
  assert.equal(errorCentre(target, target), null)
  const tooMuch = mask(['0000111', '0111111', '0111111', '0111111', '0000111'])
  assert.deepEqual(errorCentre(target, tooMuch), { point: [5, 1], label: 0, d2: 4 })
  const both = mask(['0000001', '0000000', '0000000', '0000000', '0000000'])
  assert.deepEqual(errorCentre(target, both), { point: [2, 2], label: 1, d2: 4 })
})

test('of two errors of equal depth the click is on what is too much', () => {
  const shifted = mask(['0000000', '0000111', '0000111', '0000111', '0000000'])
  assert.deepEqual(errorCentre(target, shifted), { point: [5, 2], label: 0, d2: 4 })
})

test('a negative click ignores what is missing, and without an object there is no click', () => {
  const both = mask(['0000001', '0000000', '0000000', '0000000', '0000000'])
  assert.deepEqual(errorCentre(target, both, 'negative'), { point: [6, 0], label: 0, d2: 1 })
  assert.equal(errorCentre(target, null, 'negative'), null)
  assert.equal(errorCentre(mask(['00', '00']), mask(['10', '00'])), null)
})
