import assert from 'node:assert/strict'
import { test } from 'node:test'
import { dealRecords, ownPieces, RecordCosts } from './share.ts'

const pieceOf = (ids: string) => [...ids].map((id) => ({ id }))
const costsOf = (known: Record<string, number>) => {
  const costs = new RecordCosts()
  costs.restore({ known: Object.entries(known), fresh: [] })
  return costs
}

test('records of equal or unknown cost are dealt in turn, over the pieces of a step', () => {
  const pieces = [pieceOf('abc'), pieceOf('defg')]
  const inTurn = [
    [0, 1, 0],
    [1, 0, 1, 0],
  ]
  assert.deepEqual(dealRecords(pieces, 2, costsOf({})), inTurn)
  assert.deepEqual(dealRecords(pieces, 2, costsOf({ a: 7, b: 7, c: 7, d: 7, e: 7, f: 7, g: 7 })), inTurn)
  assert.deepEqual(dealRecords(pieces, 2, costsOf({ b: 3 })), inTurn, 'unknown: the mean')
})

test('expensive records go to different processes, and none has more than its share of a piece', () => {
  const deal = (known: Record<string, number>, size: number, ...pieces: string[]) =>
    dealRecords(pieces.map(pieceOf), size, costsOf(known))
  assert.deepEqual(deal({ a: 10, b: 1, c: 10, d: 1 }, 2, 'abcd'), [[0, 0, 1, 1]])
  assert.deepEqual(deal({ a: 100, b: 1, c: 1, d: 1 }, 2, 'abcd'), [[0, 1, 1, 0]], 'two of four records each')
  assert.deepEqual(
    deal({ a: 100, b: 1, c: 1, d: 1 }, 2, 'a', 'b', 'c', 'd'),
    [[0], [1], [1], [1]],
    'pieces of one record',
  )
})

test('for any costs every record is dealt to one process, and the largest load exceeds the mean by one record at most', () => {
  for (const size of [2, 3, 4, 7]) {
    const ids = Array.from({ length: 28 }, (_, i) => ({ id: `r${i}` }))
    const costs = costsOf(Object.fromEntries(ids.map(({ id }, i) => [id, 1 + ((i * i * 31) % 97)])))
    const pieces = ids.map((item) => [item])
    const parts = Array.from({ length: size }, (_, rank) => ownPieces({ world: { rank, size }, costs }, pieces).flat())
    assert.deepEqual(
      parts
        .flat()
        .map(({ id }) => id)
        .sort(),
      ids.map(({ id }) => id).sort(),
    )
    const loads = parts.map((part) => part.reduce((sum, { id }) => sum + costs.of(id)!, 0))
    const mean = loads.reduce((a, b) => a + b, 0) / size
    assert.ok(Math.max(...loads) - mean <= 97, `${size}: ${loads}`)
  }
})

test('costs are the tokens of all tasks, decide after the next settle, and are the same after a restore', () => {
  const costs = new RecordCosts()
  const group = (id: string, ...lengths: number[]) => {
    return {
      item: { id },
      samples: lengths.map((n) => ({ ids: new Int32Array(n), text: '', finished: true })),
    } as never
  }
  costs.measure([group('a', 3, 4), group('b', 1, 1), group('a', 2, 2)])
  assert.equal(costs.of('a'), undefined)
  const copy = new RecordCosts()
  copy.restore(JSON.parse(JSON.stringify(costs.state())))
  for (const one of [costs, copy]) {
    one.settle()
    assert.deepEqual([one.of('a'), one.of('b'), one.of('c')], [11, 2, undefined])
    one.measure([group('a', 1)])
    assert.equal(one.of('a'), 11, 'not before the next generation batch')
  }
  costs.measure(Array.from({ length: 20_000 }, (_, i) => group(`n${i}`, 1)))
  costs.settle()
  assert.deepEqual(
    [costs.of('a'), costs.of('n0'), costs.of('n19999'), costs.state().known.length],
    [undefined, 1, 1, 20_000],
  )
})
