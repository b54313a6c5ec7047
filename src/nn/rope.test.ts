import assert from 'node:assert/strict'
import { test } from 'node:test'
import { int64Tensor, tensor, tidy } from '../tensor/index.ts'
import { Rope } from './rope.ts'

test('interleaved axes take turns over the frequencies, and time has those that are left', () => {
  // Qwen3-VL: head of 128, sections 24, 20, 20: row where i mod 3 = 1 and i < 60, column where i mod 3 = 2 and i < 60
  // a small base: with Qwen3-VL's the last frequencies turn by less than the bound, whatever their axis
  const [theta, positions] = [10, [[5], [11], [17]]]
  tidy(() => {
    const { cos } = new Rope(128, theta, [24, 20, 20], true).table(
      int64Tensor(positions.flat(), [3, 1, 1]),
      tensor([0]),
    )
    const got = cos.numbers()
    for (let i = 0; i < 64; i++) {
      const axis = i < 60 ? i % 3 : 0
      const angle = positions[axis]![0]! / theta ** ((2 * i) / 128)
      assert.ok(Math.abs(got[i]! - Math.cos(angle)) < 1e-5, `frequency ${i}: ${got[i]} against ${Math.cos(angle)}`)
      assert.equal(got[i + 64], got[i])
    }
  })
})

test('equal positions on every axis are plain rotation, in blocks and interleaved', () => {
  tidy(() => {
    const plain = new Rope(32, 1e4).table(tensor(BigInt64Array.of(7n), [1, 1]), tensor([0])).cos.numbers()
    for (const interleaved of [false, true]) {
      const rope = new Rope(32, 1e4, [6, 5, 5], interleaved)
      assert.deepEqual(rope.table(tensor(BigInt64Array.of(7n, 7n, 7n), [3, 1, 1]), tensor([0])).cos.numbers(), plain)
    }
  })
})
