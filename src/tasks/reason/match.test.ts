import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stream } from '../../core/index.ts'
import { assign } from './match.ts'

/** The best sum over all ways to pair, tried one by one. */
function bestSum(values: readonly (readonly number[])[], row = 0, free = values[0]?.map((_, j) => j) ?? []): number {
  if (row === values.length || free.length === 0) return 0
  const skips = values.length - row > free.length ? [bestSum(values, row + 1, free)] : []
  const taken = free.map((j) => values[row]![j]! + bestSum(values, row + 1, free.filter((k) => k !== j))) // biome-ignore format: one line
  return Math.max(...skips, ...taken)
}

test('assign pairs every object of the shorter side once, with the largest sum', () => {
  const random = stream(3, 'assign')
  for (let n = 0; n < 120; n++) {
    const [rows, columns] = [1 + random.below(5), 1 + random.below(5)]
    const values = Array.from({ length: rows }, () => Array.from({ length: columns }, () => random.below(4)))
    const pairs = assign(values)
    assert.equal(pairs.length, Math.min(rows, columns))
    assert.equal(new Set(pairs.map(([i]) => i)).size, pairs.length)
    assert.equal(new Set(pairs.map(([, j]) => j)).size, pairs.length)
    assert.equal(pairs.reduce((sum, [i, j]) => sum + values[i]![j]!, 0), bestSum(values), JSON.stringify(values)) // biome-ignore format: one line
  }
  assert.deepEqual(assign([]), [])
  assert.deepEqual(assign([[], []]), [])
})
