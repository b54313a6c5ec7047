import assert from 'node:assert/strict'
import { test } from 'node:test'
import { borrow, LentMemory } from './lent-memory.ts'
import { zeros } from './ops.gen.ts'
import { memory, tidy } from './scope.ts'

test('memory is lent to one at a time, in tensors that do not overlap, until its owner reclaims it', () => {
  const before = memory().tensors
  tidy(() => {
    const lender = new LentMemory([[3, 5], [2, 128]], { dtype: 'float32', device: 'cpu' }) // biome-ignore format: one line
    const like = zeros([1])
    assert.equal(borrow(like.to('float64')), null, 'of another dtype')
    const loan = borrow(like)!
    assert.equal(borrow(like), null)
    assert.deepEqual([loan.roomFor([3, 5]), loan.roomFor([2, 128]), loan.roomFor([4, 128])], [3, 1, 0])
    const [a, b] = [loan.take([3, 5]), loan.take([3, 5])]
    a.fill_(1)
    b.fill_(2)
    assert.deepEqual([a.shape, a.sum().item(), b.sum().item(), loan.roomFor([3, 5])], [[3, 5], 15, 30, 1])
    lender.reclaim()
    assert.equal(loan.holds, false)
    const next = borrow(like)!
    loan.end()
    assert.deepEqual([next.holds, borrow(like), next.roomFor([3, 5])], [true, null, 3])
    next.end()
    lender.dispose()
    assert.equal(borrow(like), null)
  })
  assert.equal(memory().tensors, before)
})
