import assert from 'node:assert/strict'
import { test } from 'node:test'
import { arange, tensor, tidy, zeros } from '../../../tensor/index.ts'
import { PackedCache } from './packed-cache.ts'
import { ofRows, openUnits, roundedRows, widened, withMoreRows } from './padded-rows.ts'

test('few numbers of rows are used, none smaller than asked for', () => {
  const used = new Set(Array.from({ length: 64 }, (_, i) => roundedRows(i + 1)))
  assert.deepEqual([...used], [1, 2, 4, 8, 16, 32, 48, 64])
  for (let rows = 1; rows <= 64; rows++) assert.ok(roundedRows(rows) >= rows, `${rows} rows`)
})

test('padding rows follow the real rows, and are removed again', () => {
  tidy(() => {
    const numbers = Float64Array.of(0.1, 0.2, 0.3, 0.4, 0.6, 0.7)
    assert.deepEqual([...widened(numbers, 3, 4)], [0.1, 0.2, 0.3, 0.5, 0.4, 0.6, 0.7, 0.5])
    const all = [1, 2, 3, 0, 4, 5, 6, 0]
    const hidden = arange(0, 8, { dtype: 'float32' }).view([2, 4, 1])
    const [logps, drawnLogps] = [all.map((n) => -n), all.map((n) => n / 2)]
    const cut = ofRows({ ids: all, logps, drawnLogps, hidden }, 4, 3)
    assert.deepEqual(cut.ids, [1, 2, 3, 4, 5, 6])
    assert.deepEqual([cut.logps, cut.drawnLogps], [cut.ids.map((n) => -n), cut.ids.map((n) => n / 2)])
    assert.deepEqual(cut.hidden.flatten().numbers(), [0, 1, 2, 4, 5, 6])
  })
})

test('a unit is open while one of its rows is; rows that fill up are not', () => {
  const [yes, no] = [true, false]
  assert.deepEqual(openUnits([3, 3, 4, 4], 8, [no, yes, no, no, yes]), [3, -1, 4, -1])
  assert.deepEqual(openUnits([0, 1, 2, 2], 4, [yes, no, yes]), [0, -1, 2, -1])
  assert.deepEqual(openUnits([0, 1], 8, [yes, yes, yes, yes, no, no, no, yes]), [0, 1])
})

test('a start is filled up with rows of the last prompt and prompts of nobody; its own stay as they were', () => {
  tidy(() => {
    const rows = arange(0, 5 * 4, { dtype: 'float32' }).view([1, 5, 4]) // one layer, one head of 2
    const cache = new PackedCache(rows, [[0, 1], [0, 2, 3], [4]], { keys: 1, dim: 2 })
    const start = { cache, rows: null, valid: null, next: [2, 3, 1], columns: 3, lengths: [2, 3, 1] }
    const more = withMoreRows(start)
    assert.deepEqual(
      [more.lengths, more.next, more.rows!.numbers()],
      [
        [2, 3, 1, 1],
        [2, 3, 1, 1],
        [0, 1, 2, 2],
      ],
    )
    assert.equal(cache.batch, 4)
    const all = zeros([1, 2, 4, 1, 8, 2])
    cache.copyInto(all)
    const keys = (p: number, n: number) =>
      all.select(0, 0).select(0, 0).select(0, p).select(0, 0).narrow(0, 0, n).flatten().numbers()
    assert.deepEqual(keys(0, 2), [0, 1, 4, 5])
    assert.deepEqual(keys(1, 3), [0, 1, 8, 9, 12, 13])
    assert.deepEqual(keys(2, 1), [16, 17])
    cache.dispose()
  })
})

test('rows and prompts are filled up each to its own count', () => {
  tidy(() => {
    const cache = new PackedCache(zeros([1, 3, 4]), [[0], [1], [2]], { keys: 1, dim: 2 })
    const rows = tensor(Int32Array.of(0, 0, 1, 1, 2))
    const start = { cache, rows, valid: null, next: [5, 6, 7, 8, 9], columns: 1, lengths: [1, 1, 1] }
    const more = withMoreRows(start)
    assert.deepEqual([cache.batch, more.lengths!.length], [4, 4])
    assert.deepEqual(more.next, [5, 6, 7, 8, 9, 9, 9, 9])
    assert.deepEqual(more.rows!.numbers(), [0, 0, 1, 1, 2, 2, 2, 2])
    cache.dispose()
  })
})
