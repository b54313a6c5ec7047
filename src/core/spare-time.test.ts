import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inSpareTime, spendSpareTime } from './spare-time.ts'

test('jobs are done while there is time, the newest first, and the rest later', () => {
  const done: number[] = []
  for (const i of [0, 1, 2]) inSpareTime(() => void done.push(i))
  spendSpareTime(0)
  assert.equal(done.length, 0)
  spendSpareTime(1e6)
  assert.deepEqual(done, [2, 1, 0])
  const until = performance.now() + 5
  inSpareTime(() => void done.push(3))
  inSpareTime(() => {
    while (performance.now() < until); // takes all the time there is
  })
  spendSpareTime(1)
  assert.deepEqual(done, [2, 1, 0])
  spendSpareTime(1e6)
  assert.deepEqual(done, [2, 1, 0, 3])
})

test('jobs for which there is never time are dropped, the oldest first', () => {
  const done: number[] = []
  for (let i = 0; i < 1000; i++) inSpareTime(() => void done.push(i))
  spendSpareTime(1e6)
  assert.ok(done.length < 1000 && done.length > 100, `${done.length} jobs`)
  assert.deepEqual(done.slice(0, 2), [999, 998])
})
