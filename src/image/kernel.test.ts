import assert from 'node:assert/strict'
import { test } from 'node:test'
import { kernelWith, weightBits } from './kernel.ts'

test('a line is the weighted sum of bytes, rounded and clipped', () => {
  const { line, memory } = kernelWith(4096)
  const one = 1 << weightBits
  memory.set([10, 20, 30, 255, 50, 60, 70, 255, 90, 100, 110, 0], 0)
  new Int32Array(memory.buffer, 1024, 2).set([0, 4]) // first byte of each step
  const cases: [number[], number[]][] = [
    [
      [one, 0],
      [10, 20, 30, 255, 50, 60, 70, 255],
    ],
    [
      [one / 2, one / 2],
      [30, 40, 50, 255, 70, 80, 90, 128],
    ],
    [
      [one, one],
      [60, 80, 100, 255, 140, 160, 180, 255],
    ],
    [
      [one, -one],
      [0, 0, 0, 0, 0, 0, 0, 255],
    ],
  ]
  for (const [weights, expected] of cases) {
    new Int32Array(memory.buffer, 2048, 4).set([...weights, ...weights])
    line(0, 512, 520, 1024, 2048, 8, 8, 4, 4)
    assert.deepEqual([...memory.subarray(512, 520)], expected)
  }
})

test('a large piece of work gets its own memory and leaves the kept one small', () => {
  const small = kernelWith(1000).memory.buffer.byteLength
  assert.ok(kernelWith(257 * 1024 * 1024).memory.length >= 257 * 1024 * 1024)
  assert.equal(kernelWith(1000).memory.buffer.byteLength, small)
  assert.ok(kernelWith(small + 1).memory.length > small)
})
