import assert from 'node:assert/strict'
import test from 'node:test'
import { balanceOf, followNorm } from './balance.ts'

test('a running norm begins with the first and then follows by a tenth', () => {
  assert.equal(followNorm(0, 4), 4)
  assert.ok(Math.abs(followNorm(4, 14) - 5) < 1e-12, `${followNorm(4, 14)}`)
})

test('weights are the mean norm over the own one, from 0.2 to 5; a task without gradient keeps its weight', () => {
  assert.deepEqual(balanceOf({ loop1: 3, loop2: 1 }), { loop1: 2 / 3, loop2: 2 })
  assert.deepEqual(balanceOf({ loop1: 1000, loop2: 1 }), { loop1: 0.5005, loop2: 5 })
  assert.equal(balanceOf({ a: 100, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1 })['a'], 0.2)
  assert.deepEqual(balanceOf({ loop1: 2, loop2: 0 }), { loop1: 0.5 })
})
