import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RandomStream, shuffled, stream } from './random.ts'

test('Philox 4x32-10 gives the published words for key 0 and counter 0', () => {
  const s = new RandomStream(0, 0)
  assert.deepEqual(
    [0, 1, 2, 3].map((i) => s.wordAt(i)),
    [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
  )
})

test('a word depends on key and counter alone, not on the order of calls', () => {
  const forward = stream(1, 2, 'a')
  const words = Array.from({ length: 50 }, (_, i) => forward.wordAt(i))
  const backward = stream(1, 2, 'a')
  for (let i = 49; i >= 0; i--) assert.equal(backward.wordAt(i), words[i])
  assert.notEqual(stream(1, 2, 'b').wordAt(0), words[0])
})

test('uniforms and normals have the moments of their laws', () => {
  const s = stream(7)
  const n = 40000
  const u = Array.from({ length: n }, () => s.uniform())
  const z = Array.from({ length: n }, () => s.normal())
  const mean = (x: number[]) => x.reduce((a, b) => a + b, 0) / n
  assert.ok(Math.abs(mean(u) - 0.5) < 0.01)
  assert.ok(Math.abs(mean(z)) < 0.02)
  assert.ok(Math.abs(mean(z.map((v) => v * v)) - 1) < 0.03)
})

test('shuffled is a permutation that the stream decides', () => {
  const items = Array.from({ length: 20 }, (_, i) => i)
  const once = shuffled(items, stream(3))
  assert.deepEqual(once, shuffled(items, stream(3)))
  assert.notDeepEqual(once, items)
  assert.deepEqual(
    [...once].sort((a, b) => a - b),
    items,
  )
})
