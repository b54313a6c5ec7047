import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withinMinute } from '../../../tests/support/in-time.ts'
import { encodeRle, maskFromDense } from '../../mask/index.ts'
import type { MaskRle, ReadSample, Shown } from '../events.ts'
import { traitsOf, wordsOf } from './traits.ts'

test('words of an answer are in lower case, without special tokens and without punctuation', () => {
  assert.deepEqual(wordsOf('A red Cup,[SEG]<|im_end|> cut <|in_two and|> <| open'), ['a', 'red', 'cup', 'cut', 'open'])
})

test('a million special tokens that do not end are read in one pass', () => {
  assert.equal(withinMinute(() => wordsOf(`${'<|'.repeat(1_000_000)} end`)).length, 1)
})

const [width, height] = [32, 16]

/** A box of a picture of 32 x 16. */
function box(left: number, top: number, w: number, h: number): MaskRle {
  const pixels = Uint8Array.from({ length: width * height }, (_, i) => {
    const [x, y] = [i % width, Math.floor(i / width)]
    return x >= left && x < left + w && y >= top && y < top + h ? 1 : 0
  })
  return encodeRle(maskFromDense(pixels, height, width))
}

function traits(shown: readonly Shown[], more: Partial<ReadSample> = {}) {
  const plain = { step: 1, loop: 'a', id: 'r', k: 0, rewards: {}, total: 1, advantage: 0, logp: 0, length: 5 }
  return traitsOf({ ...plain, shown, ...more })
}

const given = (mask: MaskRle): Shown => ({ kind: 'mask', by: 'record', mask })
const drawn = (mask: MaskRle | null, by: 'policy' | 'ema' = 'policy'): Shown => ({ kind: 'mask', by, mask })
const words = (text: string): Shown => ({ kind: 'text', by: 'policy', text })
const points = (...all: [x: number, y: number, positive: boolean][]): Shown => ({
  ...{ kind: 'points', by: 'policy', size: [height, width] },
  points: all.map(([x, y, positive]) => ({ x, y, positive })),
})

test('points on the record and on its wrong side are shares; none is an answer too', () => {
  const mask = given(box(20, 2, 8, 4))
  const both = points([21, 3, true], [27, 5, false], [3, 10, false], [2, 14, true])
  const { onObject, misplaced, noTarget } = traits([mask, both]).values
  assert.deepEqual([onObject, misplaced, noTarget], [2 / 4, 2 / 4, 0])
  const one = traits([mask, points([21, 3, true], [22, 4, true], [3, 10, true])]).values
  assert.deepEqual([one.onObject, one.misplaced], [2 / 3, 1 / 3])
  assert.deepEqual(traits([mask, points()]).values.noTarget, 1)
  const large: Shown = { ...points([210, 30, true], [30, 100, true]), size: [10 * height, 10 * width] } as Shown
  assert.equal(traits([mask, large]).values.onObject, 1 / 2, 'points of a larger picture')
})

test('a mask that is missing has no overlap, which counts; area and box are ratios to those of the record', () => {
  const mask = given(box(0, 0, 8, 4))
  const missing = traits([mask, drawn(null)]).values
  assert.deepEqual([missing.noMask, missing.iou, missing.area], [1, 0, undefined])
  const { area, box: boxes, iou, whole, empty } = traits([mask, drawn(box(4, 0, 8, 8))]).values
  assert.deepEqual([area, boxes, iou, whole, empty], [2, 2, 16 / (32 + 64 - 16), 0, 0])
  assert.equal(traits([mask, drawn(box(0, 0, 32, 16))]).values.whole, 1)
  assert.equal(traits([drawn(box(0, 0, 32, 16))]).values.noMask, undefined)
})

test('an answer of six words or more repeats itself when at most half of them are different', () => {
  const repeated = (text: string) => traits([words(text)]).values.repeated
  assert.deepEqual(['a a a a a', 'a a a b b c', 'a a b b c d', 'a b a b a b a b'].map(repeated), [0, 1, 0, 1])
})

test('answers are at one place on a grid of 8 x 8: points in any order, the box of the own mask, else the words', () => {
  const place = (...shown: Shown[]) => traits(shown).place
  assert.equal(place(points([1, 1, true], [31, 15, true])), place(points([30, 14, true], [3, 0, true])))
  assert.notEqual(place(points([1, 1, true])), place(points([1, 1, false])))
  assert.notEqual(place(points([4, 1, true])), place(points([3, 1, true]))) // 32 columns are 8 cells of 4
  assert.equal(place(drawn(box(8, 4, 12, 6))), '2,2,3,3')
  assert.equal(place(words('The Cup.'), drawn(box(8, 4, 12, 6), 'ema')), 'the cup')
  assert.equal(place(drawn(box(0, 0, 0, 0))), 'empty')
  assert.equal(place(), null)
})

test('the judge is apart from the mean of the other parts, those without a score left out', () => {
  const { judge, others } = traits([], { rewards: { judge: 9, iou: 1, length: 2, meteor: null } })
  assert.deepEqual([judge, others], [9, 1.5])
  assert.deepEqual([traits([]).judge, traits([]).others], [null, null])
})
