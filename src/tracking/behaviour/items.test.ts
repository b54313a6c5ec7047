import assert from 'node:assert/strict'
import { test } from 'node:test'
import { examplesOf, itemsOf, wordShifts } from './items.ts'
import type { Traits } from './traits.ts'

/** An answer about record `id` in step 1. */
function answer(id: string, k: number, more: Partial<Traits> = {}): Traits {
  const plain = { values: {}, answer: `${id} ${k}`, place: null, words: [], judge: null, others: null }
  return { step: 1, loop: 'a', id, k, ...plain, ...more }
}

const answers = (id: string, all: readonly Partial<Traits>[]) => all.map((more, k) => answer(id, k, more))
const names = (all: readonly Traits[]) => all.map(({ id, k }) => `${id} ${k}`)

test('duplicates are the answers that their group already gave, out of those that could be', () => {
  const said = (id: string, words: string) =>
    answers(
      id,
      [...words].map((one) => ({ answer: one })),
    )
  const window = [...said('r', 'aab'), ...said('s', 'ccc'), ...said('t', 'd')]
  assert.equal(itemsOf(window).duplicates, 3 / 4) // one of 2, two of 2; a group of one has none to repeat
  assert.equal(itemsOf(said('t', 'd')).duplicates, Number.NaN)
})

test('the judge agrees on pairs of a group that both order the same way; pairs that are equal on a side do not count', () => {
  const scored = (id: string, pairs: readonly [number | null, number | null][]) =>
    answers(id, pairs.map(([judge, others]) => ({ judge, others }))) // biome-ignore format: one line
  const ordered = scored('r', [[1, 1], [2, 2], [3, 0]]) // biome-ignore format: one line
  assert.equal(itemsOf(ordered).judge, 1 / 3) // 1 < 2 on both sides; the third is above for the judge and below for the others
  const equal = scored('s', [[1, 1], [1, 2], [2, 2], [5, null], [null, 5]]) // biome-ignore format: one line
  assert.equal(itemsOf(equal).judge, 1)
  assert.equal(itemsOf([...ordered, ...equal]).judge, 2 / 4)
  assert.equal(itemsOf(scored('t', [[1, 1]])).judge, Number.NaN)
})

test('the most common answer is a share of all answers, of two records at least', () => {
  const placed = (id: string, places: readonly (string | null)[]) => answers(id, places.map((place) => ({ place }))) // biome-ignore format: one line
  const window = [...placed('r', ['x', 'y', 'x']), ...placed('s', ['x', null])]
  assert.equal(itemsOf(window).same, 3 / 5)
  assert.deepEqual(names(examplesOf('same', window, true)), ['r 0', 's 0'])
  assert.equal(itemsOf(placed('r', ['x', 'x'])).same, 0)
  assert.equal(itemsOf([]).same, Number.NaN)
})

test('ratios are medians, shares and numbers are means over the answers that have them', () => {
  const window = answers('r', [
    { values: { area: 1, whole: 0, length: 4 } },
    { values: { area: 2, whole: 1, length: 5 } },
    { values: { area: 30, whole: 0 } },
    { values: {} },
  ])
  const { area, whole, length, iou } = itemsOf(window)
  assert.deepEqual([area, whole, length, iou], [2, 1 / 3, 4.5, Number.NaN])
})

test('examples are the strongest answer of each record, the strongest record first, and none without a share', () => {
  const window = [
    ...answers('r', [{ values: { iou: 0.2, whole: 0 } }, { values: { iou: 0.6, whole: 1 } }]),
    ...answers('s', [{ values: { iou: 0.9, whole: 1 } }, { values: { iou: 0.7, whole: 1 } }]),
    ...answers('t', [{ values: { iou: 0.5, whole: 0 } }]),
    ...answers('u', [{ values: {} }]),
  ]
  assert.deepEqual(names(examplesOf('iou', window, true)), ['s 0', 't 0', 'r 1'])
  assert.deepEqual(names(examplesOf('iou', window, false)), ['r 0', 't 0', 's 1'])
  assert.deepEqual(names(examplesOf('whole', window, true)), ['s 0', 'r 1'])
})

test('words are gained and lost by the share of answers that have them, however often one has them', () => {
  const said = (texts: readonly string[]) => answers('r', texts.map((text) => ({ words: text.split(' ') }))) // biome-ignore format: one line
  const before = said(['a red cup', 'a cup', 'a dog', 'a dog dog dog'])
  const after = said(['the red red red cup', 'the cup', 'a cup', 'the cup'])
  const shift = (word: string, was: number, is: number) => ({ word, before: was, after: is })
  assert.deepEqual(wordShifts(before, after, 1), [shift('the', 0, 0.75), shift('cup', 0.5, 1)])
  assert.deepEqual(wordShifts(before, after, -1), [shift('a', 1, 0.25), shift('dog', 0.5, 0)])
  assert.deepEqual(wordShifts(before, after, 1, 1), [shift('the', 0, 0.75)])
})
