import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { assertSameInGroupOfOne } from '../support/group-of-one.ts'
import { ownProgram } from '../support/own-program.ts'
import { makeToy, scratch } from '../support/runs.ts'
import { freePort, runRanks } from './distributed-ranks.ts'

const folder = scratch('group')
after(() => rmSync(folder, { recursive: true, force: true }))

test('a group of one process runs the same step as without a group, and its collectives are in the phase table', async () => {
  const rl = { numGenerations: 2, maxCompletionLength: 5 }
  await assertSameInGroupOfOne(makeToy(join(folder, 'toy')), folder, { batchSize: 1, rl })
})

test("a user's program that calls train() under a launcher is one run of both processes", async () => {
  const [model, output] = [makeToy(join(folder, 'library-toy')), join(folder, 'library')]
  const program = ownProgram('./library-work.ts', import.meta.url)
  const ended = await runRanks(2, model, { program, words: () => [output], port: await freePort() })
  for (const { code, stderr } of ended) assert.equal(code, 0, stderr)
  const results = ended.map(({ results: [result] }) => result as { step: number; checkpoint: string })
  assert.deepEqual(results[0], results[1])
  const timing = readFileSync(join(output, 'timing.jsonl'), 'utf8').trim().split('\n')
  const steps = timing.map((line) => JSON.parse(line) as { t: string; metrics: object }).filter(({ t }) => t === 'step')
  assert.equal(steps.length, 1)
  assert.ok('ranks/sample_slowest' in steps[0]!.metrics && 'bytes_sent' in steps[0]!.metrics)
})
