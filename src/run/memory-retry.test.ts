import assert from 'node:assert/strict'
import test from 'node:test'
import { describeMemoryError, withinMemory } from './memory-retry.ts'

const outOfMemory = () => Object.assign(new Error('no room for 3 GiB\nat alloc'), { code: 'ERR_OOM' })

/** Work that fails where more than `room` records are in memory together; what it was given, in order. */
function workWithin(room: number) {
  const asked: (readonly (readonly number[])[])[] = []
  const work = async (pieces: readonly (readonly number[])[]) => {
    asked.push(pieces)
    if (pieces.some((piece) => piece.length > room)) throw outOfMemory()
    return pieces.flat()
  }
  return { asked, work }
}

test('where memory runs out, every record is there once more, in order, in halves of its piece', async () => {
  const warnings: string[] = []
  const { asked, work } = workWithin(3)
  const retry = { alone: true, report: (text: string) => void warnings.push(text) }
  assert.deepEqual(await withinMemory([[1, 2, 3, 4, 5], [6], [7, 8]], work, retry), [1, 2, 3, 4, 5, 6, 7, 8])
  assert.deepEqual(asked[1], [[1, 2, 3], [4, 5], [6], [7], [8]])
  assert.deepEqual(warnings, ['out of memory with 5 records at a time: once more with 3'])
})

test('it is tried once more and not again; single records, other errors and several processes are not tried again', async () => {
  const quiet = (alone: boolean) => ({ alone, report: () => undefined })
  const tries = async (pieces: number[][], room: number, alone: boolean) => {
    const { asked, work } = workWithin(room)
    await assert.rejects(withinMemory(pieces, work, quiet(alone)), { code: 'ERR_OOM' })
    return asked.length
  }
  assert.equal(await tries([[1, 2, 3, 4, 5]], 2, true), 2)
  assert.equal(await tries([[1], [2]], 0, true), 1)
  assert.equal(await tries([[1, 2]], 1, false), 1)
  let calls = 0
  const broken = async () => {
    calls++
    throw new Error('another')
  }
  await assert.rejects(withinMemory([[1, 2]], broken, quiet(true)), /another/)
  assert.equal(calls, 1)
  assert.throws(
    () => describeMemoryError(outOfMemory()),
    /step: memory: expected room .* got no room for 3 GiB\. the last checkpoint/,
  )
  assert.throws(() => describeMemoryError(new Error('another')), /^Error: another$/)
})
