import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { assertSameInGroupOfOne } from '../support/group-of-one.ts'
import { makeToy, scratch } from '../support/runs.ts'

const folder = scratch('group')
after(() => rmSync(folder, { recursive: true, force: true }))

test('a group of one process runs the same step as without a group, and its collectives are in the phase table', async () => {
  const rl = { numGenerations: 2, maxCompletionLength: 5 }
  await assertSameInGroupOfOne(makeToy(join(folder, 'toy')), folder, { batchSize: 1, rl })
})
