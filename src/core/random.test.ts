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

// computed by a Python program of a few lines from the definition of Philox 4x32-10
test('words of other keys and of counters beyond 2^32 are those of the definition', () => {
  const s = new RandomStream(1, 2)
  assert.deepEqual(
    [4, 5, 6, 7].map((i) => s.wordAt(i)),
    [0x5f027b1e, 0xb2571bcc, 0x2851b0fa, 0xae652d64],
  )
  const far = 4 * (5 + 3 * 2 ** 32)
  const other = new RandomStream(0xffffffff, 0x9e3779b9)
  assert.deepEqual(
    [0, 1, 2, 3].map((i) => other.wordAt(far + i)),
    [0xe2b9c567, 0xd557196e, 0xb7c33f87, 0x2d2be99d],
  )
  const uniforms = [0.021863830066934042, 0.15258119193356812, 0.3711316041398173, 0.1574965095611761]
  assert.deepEqual(
    uniforms.map((_, i) => s.uniformAt(i)),
    uniforms,
  )
  const normals = [0.12081761855705368, 0.5288114388925795, -0.9396802770571316]
  const inTurn = new RandomStream(1, 2)
  for (const [i, expected] of normals.entries())
    for (const found of [s.normalAt(i), inTurn.normal()])
      assert.ok(Math.abs(found - expected) < 1e-14, `normal ${i}: ${found} instead of ${expected}`)
})

test('every part of a key counts: its place, its high bits, and where a text ends', () => {
  const keys = [[1, 2], [2, 1], [1 + 2 ** 32, 2], [1, 2, 0], ['ab'], ['a', 'b'], ['b', 'a'], [1, '2'], ['1', 2]]
  const made = keys.map((key) => stream(...key).key.join())
  assert.equal(new Set(made).size, keys.length, made.join(' '))
  // stored runs, recorded samples and reports depend on these words
  assert.deepEqual(
    [stream(1, 2, 'a').key, stream(2 ** 40 + 7, 'loop1').key],
    [
      [3217345881, 262638208],
      [1854156476, 3084438772],
    ],
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
