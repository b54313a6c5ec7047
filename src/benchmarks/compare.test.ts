import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { SentenceScore } from './index.ts'
import { compareResults, type ScoredSentence, type StoredResult } from './index.ts'
import { protocolsOf } from './protocols.ts'

const target = { size: [2, 2], counts: '04' }

function sentence(image: number, number: number, score: SentenceScore, nothing = false): ScoredSentence {
  return {
    ...{
      split: 'val',
      id: image,
      sentence: number,
      image: `${image}.jpg`,
      text: `thing ${number}`,
      nothing,
      overlap: 0,
    },
    ...{ target, rle: target, scores: { union: score, rela: score } },
  }
}

function result(sentences: ScoredSentence[], change: Partial<StoredResult> = {}): StoredResult {
  return {
    ...{ format: 'roundtrip-benchmark' as const, benchmark: 'refcoco', split: 'val', by: {}, seed: 1, seconds: null },
    data: { folder: '', images: null, refs: null, refsHash: null },
    ...{ environment: {}, warning: null, reported: 'union', table: [], sentences },
    ...change,
  }
}

/** Ten images of three sentences, unequal ones. */
const scores = Array.from({ length: 30 }, (_, i) => ({
  image: Math.floor(i / 3),
  number: i % 3,
  I: (i * 37) % 60,
  U: 100 + i,
}))
const before = result(
  scores.map(({ image, number, I, U }) => sentence(image, number, { intersection: I, union: U, iou: I / U })),
)

test('a model against itself: no change, an interval of nothing, only ties', () => {
  const found = compareResults(before, before, { protocol: null, seed: 3 })
  for (const { change } of found.metrics) assert.deepEqual(change, { mean: 0, low: 0, high: 0 })
  assert.deepEqual([found.wins, found.losses, found.ties, found.sentences, found.images], [0, 0, 30, 30, 10])
})

test('the pairs are resampled together: a constant gain on every sentence has an interval of that gain alone', () => {
  const after = result(
    scores.map(({ image, number, I, U }) => sentence(image, number, { intersection: I, union: U, iou: I / U + 0.125 })),
  )
  const gain = compareResults(before, after, { protocol: null, seed: 3 }).metrics.find((f) => f.name === 'gIoU')!.change
  for (const value of [gain.mean, gain.low, gain.high]) assert.ok(Math.abs(value - 0.125) < 1e-12, `${value}`)
})

test('images are resampled, not sentences: a gain that one of ten images makes alone is not shown to be one', () => {
  const after = result(
    scores.map(({ image, number, I, U }) => {
      const gained = image === 4 ? 0.9 : I / U
      return sentence(image, number, { intersection: I, union: U, iou: gained })
    }),
  )
  const { change } = compareResults(before, after, { protocol: null, seed: 3 }).metrics.find((f) => f.name === 'gIoU')!
  assert.ok(change.mean > 0)
  // with ten images, 35 % of the resamples do not hold image 4 at all
  assert.equal(change.low, 0)
})

test('wins, losses and the order of the sentences that moved', () => {
  const gains = [0, 0.2, -0.5, 0.1]
  const rows = (by: number[]) => by.map((gain, i) => sentence(i, 0, { intersection: 1, union: 2, iou: 0.5 + gain }))
  const found = compareResults(result(rows([0, 0, 0, 0])), result(rows(gains)), { protocol: null, seed: 1 })
  assert.deepEqual([found.wins, found.losses, found.ties], [2, 1, 1])
  assert.deepEqual(
    found.moved.map((m) => m.before.id),
    [2, 1, 3, 0],
  )
})

test('a metric over some images only (N-acc) leaves out resamples without them', () => {
  const rows = (none: boolean) => [
    sentence(0, 0, { intersection: 0, union: 0, iou: 1, none }, true),
    ...[1, 2, 3].map((i) => sentence(i, 0, { intersection: 1, union: 2, iou: 0.5, none: false })),
  ]
  const of = (none: boolean) => result(rows(none), { benchmark: 'grefcoco', reported: 'rela' })
  const change = compareResults(of(false), of(true), { protocol: null, seed: 1 }).metrics.find(
    (f) => f.name === 'N_acc',
  )!
  assert.deepEqual([change.before, change.after, change.change], [0, 1, { mean: 1, low: 1, high: 1 }])
})

test('other sentences, another split, another target and an unknown protocol are refused', () => {
  const options = { protocol: null, seed: 1 }
  const fewer = result(before.sentences.slice(1))
  assert.throws(
    () => compareResults(before, fewer, options),
    /the same 30 sentences.*29 sentences, 1 of the first file/,
  )
  assert.throws(() => compareResults(fewer, before, options), /the same 29 sentences.*30 sentences, 0/)
  assert.throws(
    () => compareResults(before, result(before.sentences, { split: 'test' }), options),
    /split: expected val/,
  )
  const moved = { ...before.sentences[0]!, target: { size: [2, 2], counts: '13' } }
  assert.throws(
    () => compareResults(before, result([moved, ...before.sentences.slice(1)]), options),
    /same text and target/,
  )
  assert.throws(
    () => compareResults(before, before, { protocol: 'rela', seed: 1 }),
    /--protocol: expected union, sa2va/,
  )
})

test('sentences with other words are not compared, and nothing over nothing is 0', () => {
  const empty = [0, 1].map((image) => sentence(image, 0, { intersection: 0, union: 0, iou: null }))
  const renamed = empty.map((s) => ({ ...s, text: 'another thing' }))
  assert.throws(
    () => compareResults(result(empty), result(renamed), { seed: 1, protocol: null }),
    /the same text and target/,
  )
  for (const protocol of protocolsOf('refcoco').filter(({ guard }) => guard > 0)) {
    const scored = empty.map((s) => ({ ...s, scores: { [protocol.name]: s.scores['union']! } }))
    const { metrics } = compareResults(result(scored), result(scored), { seed: 1, protocol: protocol.name })
    assert.equal(metrics.find(({ name }) => name === 'cIoU')!.before, 0, protocol.name)
  }
})

test('a sentence that only one of the two has a score for has no change', () => {
  const rows = (second: number | null) =>
    result([0, 1].map((i) => sentence(i, 0, { intersection: 1, union: 2, iou: i === 0 ? 0.5 : second })))
  for (const [a, b] of [
    [0.5, null],
    [null, 0.5],
  ] as const) {
    const found = compareResults(rows(a), rows(b), { protocol: null, seed: 1 })
    assert.deepEqual([found.wins, found.losses, found.ties, found.moved.length], [0, 0, 1, 1])
  }
})
