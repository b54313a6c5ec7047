import assert from 'node:assert/strict'
import { test } from 'node:test'
import { int64Tensor, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { KVCache } from './kv-cache.ts'

const [batch, heads, capacity, dim] = [2, 3, 5, 2]
const like = { dtype: 'float32', device: 'cpu' } as const
/** Another number for each layer, list and place. */
const valueAt = (layer: number, list: number, place: number) => 1000 * layer + 100 * list + place + 1

function filled(value: (layer: number, list: number, place: number) => number): KVCache {
  const cache = new KVCache(2, { batch, heads, capacity, dim }, like)
  const all = [cache.keys, cache.values]
  all.forEach((tensors, list) => {
    tensors.forEach((t, layer) => {
      const numbers = Float32Array.from({ length: t.numel }, (_, place) => value(layer, list, place))
      tidy(() => void t.copy_(tensor(numbers, [...t.shape])))
    })
  })
  return cache
}

/** What a cell has by an explicit loop over rows, heads, columns and numbers of a head. */
function written(layer: number, list: number, rows: readonly number[], columns: number): number[] {
  const out: number[] = []
  for (const row of rows)
    for (let h = 0; h < heads; h++)
      for (let c = 0; c < capacity; c++)
        for (let d = 0; d < dim; d++) {
          const place = ((row * heads + h) * capacity + c) * dim + d
          out.push(c < columns ? valueAt(layer, list, place) : 0)
        }
  return out
}

const numbersOf = (tensors: readonly Tensor[]) => tensors.map((t) => t.numbers())
const bothOf = (cache: KVCache) => [numbersOf(cache.keys), numbersOf(cache.values)]
const expected = (rows: readonly number[], columns: number) =>
  [0, 1].map((list) => [0, 1].map((layer) => written(layer, list, rows, columns)))

test('a copy has the first columns of the chosen rows, and zeros where an older pass left NaN', () => {
  const cases: [number[] | null, number][] = [[null, 3], [[1, 0], 2], [[1, 1], 4]] // biome-ignore format: one line
  for (const [rows, columns] of cases) {
    const [from, to] = [filled(valueAt), filled(() => Number.NaN)]
    tidy(() => to.copyFrom(from, columns, rows && int64Tensor(rows, [rows.length])))
    assert.deepEqual(bothOf(to), expected(rows ?? [0, 1], columns))
    for (const cache of [from, to]) cache.dispose()
  }
})

test('the rows of a prompt are repeated for its samples, all columns of them', () => {
  const cache = filled(valueAt)
  tidy(() => cache.select(int64Tensor([1, 0, 1], [3])))
  assert.equal(cache.batch, 3)
  assert.deepEqual(bothOf(cache), expected([1, 0, 1], capacity))
  assert.equal(cache.bytes, 2 * 2 * (3 * heads * capacity * dim) * 4)
  cache.dispose()
})
