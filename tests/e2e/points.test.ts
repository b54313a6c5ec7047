// The demo of the point task as a user starts it, shortened.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import type { Interval } from '../../src/tracking/index.ts'
import { scratch } from '../support/runs.ts'
import { roundtrip } from './cli.ts'

const folder = scratch('points-demo')
after(() => rmSync(folder, { recursive: true, force: true }))

const demo = (name: string, flags: string) => [
  ...['--task', 'points', '--seed', '3', '--output', join(folder, name)],
  ...flags.split(' '),
]
const figures = [
  'points/gain',
  'points/gain_random',
  'points/gain_heuristic',
  'points/gain_oracle',
  'points/share_of_oracle',
]

test('without a learning rate the points demo ends where it began, to the digit', async () => {
  const flags = '--maxSteps 2 --batchSize 2 --evalRecords 6 --json --rl.learningRate 0'
  const { code, out, err } = await roundtrip('demo', ...demo('still', flags))
  assert.equal(code, 0, err)
  const told = JSON.parse(out.trimEnd().split('\n').at(-1)!) as Record<'before' | 'after', Record<string, Interval>>
  assert.deepEqual(Object.keys(told), ['seed', 'seconds', 'before', 'after'])
  assert.deepEqual(told.after, told.before)
  for (const name of figures)
    assert.deepEqual(Object.keys(told.before[name] ?? {}).sort(), ['high', 'low', 'mean'], name)
  assert.match(readFileSync(join(folder, 'still', 'report.html'), 'utf8'), /<circle class="point made negative"/)
})
