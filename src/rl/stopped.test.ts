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
  const gathered = (own: [] | null, other: [] | null) => gatherGroups(besides(other), [], {} as never, [], own)
  assert.deepEqual(await gathered([], []), [])
  await assert.rejects(gathered(null, []), Stopped)
  await assert.rejects(gathered([], null), Stopped)
  await assert.rejects(gatherGroups(alone, [], {} as never, [], null), Stopped)
})
