import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { FollowedRun } from '../follow.ts'
import { SampleIndex } from '../sample-index.ts'
import { pairsOf } from './pairs.ts'

type Row = [step: number, task: string, id: string, k: number, total: number | null, parts?: Record<string, number>]

function indexOf(rows: readonly Row[]): SampleIndex {
  const index = new SampleIndex('none')
  for (const [step, loop, id, k, total, rewards = {}] of rows) {
    const line = Buffer.from(JSON.stringify({ step, loop, id, k, rewards, total, advantage: 0 }))
    index.line(line, 0, line.length + 1)
  }
  return index
}

const found = (samples: readonly Row[], evaluations: readonly Row[] = []) =>
  pairsOf({ samples: indexOf(samples), evaluations: indexOf(evaluations) } as FollowedRun)

test('records that were sampled more than once: the mean of the first group against that of the last, by task', () => {
  const pairs = found([
    [1, 'a', 'r', 0, 0.5],
    [1, 'a', 'r', 1, 1],
    [1, 'a', 'once', 0, 0],
    [2, 'a', 's', 0, null],
    [2, 'a', 's', 1, 0.5],
    [2, 'b', 'r', 0, 3],
    [3, 'a', 'r', 0, 9],
    [4, 'a', 's', 0, 0.25],
    [5, 'a', 'r', 0, 1],
    [5, 'a', 'r', 1, 2],
  ])!
  const ref = (step: number, id: string, k: number) => ({ step, loop: 'a', id, k })
  const r = { id: 'r', before: 0.75, after: 1.5, samples: [ref(1, 'r', 0), ref(5, 'r', 0)] }
  const s = { id: 's', before: 0.5, after: 0.25, samples: [ref(2, 's', 1), ref(4, 's', 0)] }
  assert.deepEqual({ ...pairs, about: '' }, {
    ...{ about: '', heldOut: false, wins: 1, losses: 1, ties: 0 },
    ...{ best: [r], worst: [s] },
  }) // biome-ignore format: one line
})

test('changes are in order from both ends, six of each, and ties are in neither', () => {
  const records = Array.from({ length: 20 }, (_, i) => ({ id: `r${i}`, by: i < 8 ? i - 8 : i < 12 ? 0 : i - 11 }))
  const pairs = found(records.flatMap(({ id, by }): Row[] => [[1, 'a', id, 0, 0], [2, 'a', id, 0, by]]))! // biome-ignore format: one line
  assert.deepEqual([pairs.wins, pairs.losses, pairs.ties], [8, 8, 4])
  assert.deepEqual(pairs.best.map(({ after }) => after), [8, 7, 6, 5, 4, 3]) // biome-ignore format: one line
  assert.deepEqual(pairs.worst.map(({ after }) => after), [-8, -7, -6, -5, -4, -3]) // biome-ignore format: one line
})

test('held-out records come first: the first round against the last, each under its own name', () => {
  const pairs = found(
    [[1, 'a', 'r', 0, 0], [2, 'a', 'r', 0, 1]],
    [
      [0, 'before', 'h', 0, 0.25, { other: 1, iou: 0.25 }],
      [0, 'again', 'h', 0, 7, { iou: 7 }],
      [5, 'middle', 'h', 0, 8, { iou: 8 }],
      [9, 'other', 'h', 0, 6, { iou: 6 }],
      [9, 'after', 'h', 0, 0.75, { iou: 0.75 }],
    ],
  )! // biome-ignore format: one line
  assert.equal(pairs.about, 'held-out records, iou, step 0 against step 9')
  assert.ok(pairs.heldOut)
  assert.deepEqual(
    pairs.best.map(({ before, after, samples }) => [before, after, ...samples.map(({ loop }) => loop)]),
    [[0.25, 0.75, 'before', 'after']],
  )
})

test('without a record that came twice there is nothing to compare', () => {
  assert.equal(found([[1, 'a', 'r', 0, 0], [1, 'a', 'r', 1, 1], [2, 'b', 'r', 0, 1]]), null) // biome-ignore format: one line
})
