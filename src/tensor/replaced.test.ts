// softmax, silu and gelu of an old torch on arm64 are loops of ours. Tensors that do not lie row by row still go to torch's own.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { native } from '../engine/index.ts'
import { backward, type Tensor, tensor, tidy } from './index.ts'

const isReplaced = process.arch === 'arm64' && native().info().version.startsWith('1.')
const ops: Record<string, (x: Tensor) => Tensor> = {
  softmax: (x) => x.softmax(-1),
  silu: (x) => x.silu(),
  gelu: (x) => x.gelu(),
}

/** Values of all sizes, from 1e-3 to beyond what exp can hold. */
const values = (rows: number, columns: number) =>
  Float32Array.from({ length: rows * columns }, (_, i) => Math.sin(i * 12.9898) * 2 ** ((i % 19) - 10))

/** The same numbers with columns apart in memory. */
const spread = (x: Tensor) => x.t().contiguous().t()

/** Torch has two kinds of gelu for the two ways to lie in memory, which round differently. */
function near(got: readonly number[], expected: readonly number[], what: string): void {
  if (isReplaced && !what.includes('gelu')) assert.deepEqual(got, expected, what)
  got.forEach((v, i) => {
    const limit = 1e-6 * Math.max(1, Math.abs(expected[i]!))
    assert.ok(Object.is(v, expected[i]) || Math.abs(v - expected[i]!) <= limit, `${what} at ${i}: ${v}, ${expected[i]}`)
  })
}

for (const [name, op] of Object.entries(ops))
  test(`${name} of numbers side by side is that of numbers apart, with its gradient`, () => {
    for (const columns of [1, 2, 7, 8, 9, 31, 64, 133])
      tidy(() => {
        const [x, y] = [0, 1].map(() => tensor(values(12, columns), [12, columns]).requiresGrad_())
        const [a, b] = [op(x!), op(spread(y!))]
        near(a.numbers(), b.numbers(), `${name} of ${columns}`)
        backward(a.mul(a).sum())
        backward(b.mul(b).sum())
        near(x!.grad()!.numbers(), y!.grad()!.numbers(), `gradient of ${name} of ${columns}`)
      })
  })

test('masked scores have no weight, a row without any score and a row with no number are no numbers', () => {
  const nothing = Number.NEGATIVE_INFINITY
  const rows = [
    [1, nothing, 2, nothing, nothing, nothing, nothing, nothing, nothing, 3],
    new Array<number>(10).fill(nothing),
    [1, 2, 3, Number.NaN, 5, 6, 7, 8, 9, 10],
    [88, -88, 100, 0, -1e30, 1e30, -100, 1, 2, 3],
  ]
  tidy(() => {
    const x = tensor(Float32Array.from(rows.flat()), [4, 10])
    const got = x.softmax(-1).numbers()
    near(got, spread(x).softmax(-1).numbers(), 'softmax')
    const total = Math.exp(1) + Math.exp(2) + Math.exp(3)
    assert.ok(Math.abs(got[9]! - Math.exp(3) / total) < 1e-6, `${got[9]}`)
    assert.deepEqual([got[1], got[3], got[35]], [0, 0, 1])
    assert.ok(got.slice(10, 30).every(Number.isNaN), `${got.slice(10, 30)}`)
  })
})
