import assert from 'node:assert/strict'
import test from 'node:test'
import { alone, type World } from '../distributed/index.ts'
import { gatherGroups } from './share.ts'
import { Stopped } from './stopped.ts'

/** The second of two processes; what the other sent is known before. */
const besides = (other: unknown): World => ({
  ...alone,
  size: 2,
  rank: 1,
  gather: async (own) => [other, own] as never,
})

test('a process that gives up its scores takes the others with it, whoever it is', async () => {
  const gathered = (own: [] | null, other: [] | null) =>
    gatherGroups(besides({ records: [], groups: other }), [], {} as never, [], own)
  assert.deepEqual(await gathered([], []), [])
  await assert.rejects(gathered(null, []), Stopped)
  await assert.rejects(gathered([], null), Stopped)
  await assert.rejects(gatherGroups(alone, [], {} as never, [], null), Stopped)
})

test('the error names the first record in which two processes differ, whichever process has fewer', async () => {
  const gathered = (records: string[], own: string[]) =>
    gatherGroups(besides({ records, groups: [] }), [], {} as never, own.map((id) => ({ id })) as never, [])
  assert.deepEqual(await gathered(['a', 'b'], ['a', 'b']), [])
  await assert.rejects(gathered(['a', 'b'], ['a', 'c']), /record b on rank 0 is record c on rank 1/)
  await assert.rejects(gathered(['a', 'b'], ['a']), /record b on rank 0 is none on rank 1/)
  await assert.rejects(gathered(['a'], ['a', 'c']), /none on rank 0 is record c on rank 1/)
})
