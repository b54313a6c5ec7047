import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tensor, tidy } from '../tensor/index.ts'
import { compareNumbers, compareTensor } from './compare.ts'

const limit = { abs: 1e-3, rel: 1e-3, words: 'close' }
const compare = (got: number[], want: number[]) => tidy(() => compareNumbers('x', got, tensor(want), limit))

test('a number that is not finite fails, at any place and on either side', () => {
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY])
    for (const at of [0, 1, 2]) {
      const broken = [1, 2, 3].map((v, i) => (i === at ? bad : v))
      assert.equal(compare(broken, [1, 2, 3]).pass, false, `got ${broken}`)
      assert.equal(compare([1, 2, 3], broken).pass, false, `expected ${broken}`)
      assert.match(compare(broken, [1, 2, 3]).detail!, new RegExp(`^element ${at}: ${bad} against ${at + 1}$`))
    }
  assert.equal(compare([Number.NaN, 2], [Number.NaN, 2]).pass, false, 'two that are not numbers are not equal')
})

test('the worst element decides, relative to the largest expected one', () => {
  const row = compare([1.0005, 2, 100.05], [1, 2, 100])
  assert.equal(row.pass, true)
  assert.ok(Math.abs(row.abs - 0.05) < 1e-4 && Math.abs(row.rel - 5e-4) < 1e-6, `${row.abs} ${row.rel}`)
  assert.equal(compare([1, 2.2, 100], [1, 2, 100]).pass, false)
  assert.equal(
    tidy(() => compareTensor('x', tensor([1]), tensor([1, 1]), limit).pass),
    false,
  )
})
