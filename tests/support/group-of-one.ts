// For tests: the same run without a group, and in a group of one process, whose collectives really run.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { joinWorld, readRank } from '../../src/distributed/index.ts'
import { type RunInput, train } from '../../src/run/index.ts'
import { hostOf, toyRun } from './runs.ts'

interface TimingLine {
  t: string
  metrics: Record<string, number>
}

/** Same events, samples and weights to the bit; the phase table of the group has its collectives. */
export async function assertSameInGroupOfOne(toy: string, folder: string, more: RunInput): Promise<void> {
  const settings = { maxSteps: 2, evalRecords: 2, ...more }
  await train(toyRun(toy, join(folder, 'alone'), settings), hostOf())
  const world = await joinWorld({ ...readRank({}), meeting: { kind: 'file', path: join(folder, 'store') } })
  await train(toyRun(toy, join(folder, 'group'), settings), hostOf(), undefined, world)
  await world.close()
  const bytes = (run: string, file: string) => readFileSync(join(folder, run, file))
  for (const file of ['events.jsonl', 'samples.jsonl'])
    assert.ok(bytes('alone', file).equals(bytes('group', file)), `${file} of both runs`)
  const weights = readdirSync(join(folder, 'alone', 'checkpoint_step_2')).filter((name) => /\.safetensors$/.test(name))
  assert.equal(weights.length, 4)
  for (const name of weights) {
    const file = join('checkpoint_step_2', name)
    assert.ok(bytes('alone', file).equals(bytes('group', file)), `${name} of both runs`)
  }
  const timing = (run: string) =>
    bytes(run, 'timing.jsonl')
      .toString()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as TimingLine)
      .filter(({ t }) => t === 'step')
  for (const { metrics } of timing('group')) {
    assert.ok(metrics['seconds/reduce']! > 0, `${metrics['seconds/reduce']} s for collectives`)
    assert.ok(metrics['bytes_sent']! > 0, `${metrics['bytes_sent']} bytes`)
  }
  for (const { metrics } of timing('alone')) assert.equal(metrics['seconds/reduce'], undefined)
}
