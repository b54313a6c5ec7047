// What must not compile. Nothing here runs but the count: tsc fails when an expected error is missing.
import assert from 'node:assert/strict'
import test from 'node:test'
import { arange, cat, checkpoint, noGrad, type Tensor, tensor, tidy, where, zeros } from './index.ts'

export function doesNotCompile(x: Tensor): void {
  // @ts-expect-error a scope is synchronous
  tidy(async () => x.add(1))
  // @ts-expect-error nor may it return a promise by another way
  tidy(() => Promise.resolve(x))
  // @ts-expect-error a string is not an operand
  x.add('1')
  // @ts-expect-error unknown option
  x.sum(0, { keepDim: true })
  // @ts-expect-error an option of the wrong type
  x.sum(0, { keepdim: 1 })
  // @ts-expect-error unknown dtype
  zeros([2], { dtype: 'float33' })
  // @ts-expect-error a required argument is missing
  x.softmax()
  // @ts-expect-error std needs its correction said
  x.std(0)
  // @ts-expect-error a list of tensors, not a tensor
  cat(x)
  // @ts-expect-error no number in a list of tensors
  cat([x, 1])
  // @ts-expect-error shapes are numbers
  x.view(['2'])
  // @ts-expect-error no such op
  x.sofmax(-1)
  // @ts-expect-error a condition is a tensor
  where(true, x, x)
  // @ts-expect-error the result of max(dim) is a pair
  x.max(1).add(1)
  // @ts-expect-error shape is read-only
  x.shape = [1]
  // @ts-expect-error a checkpoint gives tensors
  checkpoint((t: Tensor) => t.numel, x)
  // @ts-expect-error text is not data
  tensor('1, 2, 3')
  // @ts-expect-error arange counts numbers
  arange('3')
}

export function compiles(x: Tensor): { values: Tensor; indices: Tensor } {
  const y: Tensor = tidy(() => noGrad(() => x.add(1).sum(null, { keepdim: true })))
  const [a, b]: Tensor[] = y.split(2)
  return cat([a!, b!]).max(0, { keepdim: true })
}

test('the lines above are checked by tsc', () => {
  assert.equal(typeof doesNotCompile, typeof compiles)
})
