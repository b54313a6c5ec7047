import assert from 'node:assert/strict'
import test from 'node:test'
import { expectNoLeak, full, tensor, tidy } from '../tensor/index.ts'
import {
  greedyTokens,
  keepTopP,
  plainSampling,
  sampleTokens,
  seenTokens,
  suppress,
  tokenEntropies,
  tokenLogps,
  truncates,
  warpScores,
} from './sampling.ts'

const off = Number.NEGATIVE_INFINITY

test('a draw follows the cumulative probability in vocabulary order and never gives an id of probability 0', () => {
  expectNoLeak(() =>
    tidy(() => {
      const scores = tensor([[off, 0, off, 0, off]])
        .expand([4, 5])
        .contiguous()
      const ids = sampleTokens(scores, Float64Array.of(0, 0.499999, 0.5, 1 - 2 ** -53))
      assert.deepEqual(ids.numbers(), [1, 1, 3, 3])
    }),
  )
})

test('draws over a grid of u have the frequencies of the softmax', () => {
  tidy(() => {
    const n = 10_000
    const row = [0.3, -1.2, 2, 0.1]
    const ids = sampleTokens(
      tensor([row]).expand([n, 4]),
      Float64Array.from({ length: n }, (_, i) => (i + 0.5) / n),
    )
    const probabilities = tensor([row]).softmax(-1).numbers()
    const counts = [0, 0, 0, 0]
    for (const id of ids.numbers()) counts[id]!++
    for (const [i, c] of counts.entries()) assert.ok(Math.abs(c / n - probabilities[i]!) < 2e-4)
  })
})

test('a row does not depend on its neighbours', () => {
  tidy(() => {
    const rows = [
      [1, 2, 3],
      [3, 0, -1],
      [0, 0, 0],
    ]
    const u = [0.2, 0.9, 0.5]
    const together = sampleTokens(tensor(rows), Float64Array.from(u)).numbers()
    const alone = rows.map((row, i) => sampleTokens(tensor([row]), Float64Array.of(u[i]!)).item())
    assert.deepEqual(together, alone)
  })
})

test('rows without a distribution give -1, drawn or greedy', () => {
  tidy(() => {
    const scores = tensor([
      [0, Number.NaN],
      [off, off],
      [0, Number.POSITIVE_INFINITY],
      [0, 1],
    ])
    assert.deepEqual(sampleTokens(scores, new Float64Array(4)).numbers(), [-1, -1, -1, 0])
    assert.deepEqual(greedyTokens(scores).numbers(), [-1, -1, -1, 1])
  })
})

test('greedy takes the lowest id on ties, in a large vocabulary too', () => {
  tidy(() => {
    assert.deepEqual(
      greedyTokens(
        tensor([
          [1, 3, 3, 0],
          [2, 2, 2, 2],
        ]),
      ).numbers(),
      [1, 0],
    )
    assert.equal(greedyTokens(full([1, 200_000], 1)).item(), 0)
  })
})

test('top-p keeps the largest even when p is tiny, and every id at p = 1', () => {
  tidy(() => {
    assert.deepEqual(keepTopP(tensor([[1, 2, 3]]), 1e-9).numbers(), [off, off, 3])
    assert.deepEqual(warpScores(tensor([[1, 2, 3]]), plainSampling).numbers(), [1, 2, 3])
  })
})

test('top-k beyond the vocabulary keeps everything', () => {
  tidy(() => assert.deepEqual(warpScores(tensor([[1, 2]]), { ...plainSampling, topK: 50 }).numbers(), [1, 2]))
})

test('suppressed ids are never drawn', () => {
  tidy(() => {
    const scores = suppress(tensor([[9, 1, 2]]), tensor([0], { dtype: 'int64' }))
    assert.deepEqual(scores.numbers(), [off, 1, 2])
  })
})

test('the penalty is applied to each row by its own context, once per id', () => {
  tidy(() => {
    const seen = seenTokens([[1, 1, 2], []], 3)
    const got = warpScores(
      tensor([
        [4, 4, -4],
        [4, 4, -4],
      ]),
      { ...plainSampling, repetitionPenalty: 2 },
      seen,
    )
    assert.deepEqual(got.numbers(), [4, 2, -8, 4, 4, -4])
  })
})

test('bad settings and ids are refused', () => {
  tidy(() => {
    const scores = tensor([[1, 2]])
    assert.throws(() => warpScores(scores, { ...plainSampling, temperature: 0 }), /temperature/)
    assert.throws(() => warpScores(scores, { ...plainSampling, repetitionPenalty: 2 }), /seen/)
    assert.throws(() => seenTokens([[2]], 2), /0 to 1/)
    assert.throws(() => sampleTokens(scores, new Float64Array(2)), /1 numbers/)
  })
})

test('only temperature leaves the sampler on the scored policy', () => {
  assert.equal(truncates({ ...plainSampling, temperature: 0.7 }), false)
  for (const one of [{ topK: 50 }, { topP: 0.9 }, { minP: 0.1 }, { repetitionPenalty: 1.1 }])
    assert.equal(truncates({ ...plainSampling, ...one }), true, JSON.stringify(one))
  assert.equal(truncates({ ...plainSampling, minP: 0 }), false)
})

test('min-p keeps what lies exactly at its limit, as transformers does: the largest at 1', () => {
  tidy(() => {
    const kept = (q: number) => warpScores(tensor([[3, 1, 3]]), { ...plainSampling, minP: q }).numbers()
    assert.deepEqual(kept(1), [3, off, 3])
    assert.deepEqual(kept(Math.exp(-2) * (1 - 2 ** -20)), [3, 1, 3])
  })
})

test('a number at or above the sum of rounded probabilities draws the last id that has one', () => {
  tidy(() => {
    const scores = tensor([[0, 1, 2, off]])
    assert.deepEqual(sampleTokens(scores, Float64Array.of(1)).numbers(), [2])
  })
})

test('bfloat16 logits are scored in float32', () => {
  tidy(() => {
    const logits = tensor([[1, 2, 3]], { dtype: 'bfloat16' })
    const ids = tensor([2], { dtype: 'int64' })
    assert.equal(tokenLogps(logits, ids).dtype, 'float32')
    assert.ok(Math.abs(tokenLogps(logits, ids).item() + 0.40760597) < 1e-6)
    assert.ok(Math.abs(tokenEntropies(full([1, 8], 0)).item() - Math.log(8)) < 1e-6)
  })
})

test('top-p drops what lies exactly at its limit, as transformers does', () => {
  tidy(() => {
    assert.deepEqual(keepTopP(tensor([[0, 0]]), 0.5).numbers(), [off, 0])
    assert.deepEqual(keepTopP(tensor([[0, 0, 0, 0]]), 0.75).numbers(), [off, 0, 0, 0])
  })
})
