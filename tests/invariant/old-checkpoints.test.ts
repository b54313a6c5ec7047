// Runs of earlier versions can be resumed. Version 0.1.0 wrote tests/fixtures/run-0.1.0: 3 of 6 steps of the toy model with two passes per
// generation batch, stopped between the passes, so that its checkpoint contains groups. The metrics are those of 0.1.0's next step; later
// steps differ, since the field action no longer trains the language model.
import assert from 'node:assert/strict'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { overStored, type RunInput, resolveRun, resumedSettings, train } from '../../src/run/index.ts'
import { readRun } from '../../src/tracking/index.ts'
import { hostOf, makeToy, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('old')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

function oldRun(name: string, change: Record<string, unknown> = {}): string {
  const output = join(folder, name)
  cpSync(join(import.meta.dirname, '../fixtures/run-0.1.0'), output, { recursive: true })
  const path = join(output, 'config.json')
  const config = JSON.parse(readFileSync(path, 'utf8'))
  writeFileSync(path, JSON.stringify({ ...config, model: toy, ...change }))
  return output
}

/** As the commands do: the run's own settings, and what is given over them. */
const config = (output: string, given: RunInput = {}) =>
  resolveRun(overStored(resumedSettings(output), { ...given, output }))

const expected = JSON.parse(readFileSync(join(import.meta.dirname, '../fixtures/run-0.1.0.expected.json'), 'utf8'))

test('a run of 0.1.0 resumes from its checkpoint: stored groups, weights, EMA copy and reference give its next metrics', async () => {
  const output = oldRun('resumed')
  const { step, stopped } = await train(config(output), hostOf())
  assert.deepEqual([step, stopped], [6, false])
  const steps = readRun(output).events.flatMap((e) => (e.t === 'step' ? [e] : []))
  assert.deepEqual(
    steps.map((e) => e.step),
    [1, 2, 3, 4, 5, 6],
  )
  const { metrics } = steps[3]!
  for (const key of [
    'loop1/loss',
    'loop1/kl',
    'loop1/reward_mean',
    'loop2/reward_mean',
    'loop1/clip_ratio/region_mean',
  ]) {
    const value: number = expected[4][key]
    const far = Math.abs(metrics[key]! - value)
    assert.ok(far <= 1e-3 * Math.max(Math.abs(value), 1e-3), `${key}: ${metrics[key]}, then ${value}`)
  }
})

test('a run of 0.1.0 keeps settings whose defaults have changed since; the defaults of today are rejected with both values', async () => {
  const output = oldRun('defaults')
  const { loop2, lrScale, lora, optim } = config(output)
  assert.deepEqual([loop2.grid, loop2.actionStd, lrScale.mask_decoder, lora.alpha], [16, 0.5, 1, 4])
  assert.equal(optim.lrSchedulerType, 'constant')
  const today = toyRun(toy, output, {
    maxSteps: 6,
    train: ['mlp1', 'lora', 'mask_decoder'],
    lora: { rank: 2, alpha: 4 },
  })
  await assert.rejects(
    train({ ...today, loop2: { ...today.loop2, action: 'field' } }, hostOf()),
    /lrScale\.mask_decoder: 1, now 0\.1.*loop2\.grid: 16, now 4.*leave these settings out/,
  )
})

test('a run of 0.1.0 is not resumed under other settings; they are named with both values', async () => {
  const output = oldRun('refused')
  await assert.rejects(
    train(config(output, { optim: { learningRate: 2e-3, lrSchedulerType: 'constant' } }), hostOf()),
    /optim\.learningRate: 0\.001, now 0\.002/,
  )
})
