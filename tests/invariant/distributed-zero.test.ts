import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ownersOf } from '../../src/distributed/index.ts'
import { runRanks } from './distributed-ranks.ts'

test('tensors are dealt largest first, every one to a single rank, and the lightest rank is never lighter by more than one', () => {
  const sizes = new Map(Array.from({ length: 23 }, (_, i) => [`t${i}`, { numel: 1 + ((i * 37) % 19) }]))
  for (const ranks of [1, 2, 3, 8]) {
    const owners = ownersOf(sizes, ranks)
    assert.deepEqual([...owners.keys()].sort(), [...sizes.keys()].sort())
    const loads = Array.from({ length: ranks }, (_, rank) =>
      [...owners].reduce((sum, [name, owner]) => sum + (owner === rank ? sizes.get(name)!.numel : 0), 0),
    )
    assert.ok(
      Math.max(...loads) - Math.min(...loads) <= Math.max(...[...sizes.values()].map(({ numel }) => numel)),
      `${loads}`,
    )
    assert.deepEqual([...ownersOf(sizes, ranks)], [...owners])
  }
})

interface Found {
  whole: unknown
  split: unknown
  moments: number
  state: [string, number[]][]
  expected: [string, number[]][]
}

for (const size of [2, 3]) {
  test(`with moments split over ${size} ranks 20 updates give the same bits, and the state is whole again for the checkpoint`, async () => {
    const ended = await runRanks(size, 'zero')
    for (const end of ended) assert.equal(end.code, 0, end.stderr)
    const found = ended.map((end) => end.results[0] as Found)
    for (const one of found) {
      assert.deepEqual(one.split, one.whole)
      assert.deepEqual(one.state, one.expected)
    }
    const all = 2 * (35 + 3 + 22 + 40 + 1)
    assert.equal(
      found.reduce((sum, one) => sum + one.moments, 0),
      all,
    )
    for (const one of found) assert.ok(one.moments < 0.6 * all, `${one.moments} of ${all}`)
  })
}
