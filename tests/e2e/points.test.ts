// The demo of the point task, shortened, and what the prototype's users start with: real processes where a command is meant.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readDemo } from '../../src/cli/demo.ts'
import { train } from '../../src/host/index.ts'
import { doctor } from '../../src/run/index.ts'
import { type Interval, readRun } from '../../src/tracking/index.ts'
import { hostOf, scratch } from '../support/runs.ts'
import { roundtrip } from './cli.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
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
  'points/gain_error_centre',
  'points/gain_best_click',
  'points/share_of_best_click',
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

/** What points/gain rises by in a short run. */
async function risen(name: string, flags: string) {
  const { config } = readDemo(demo(name, `--maxSteps 12 --batchSize 4 --evalRecords 24${flags}`))
  const { before, after: end } = await train(config, { onProgress: () => undefined })
  return { gained: end!['points/gain']!.mean - before!['points/gain']!.mean, config }
}

test("test 7: a short run learns to leave the object alone, shuffled rewards teach nothing, the prototype's names are logged", async () => {
  const { gained, config } = await risen('short', '')
  assert.ok(gained > 0.1, `points/gain rose by ${gained}`)
  const shuffled = await risen('shuffled', ' --shuffleRewards true')
  assert.ok(shuffled.gained < gained / 2, `points/gain rose by ${gained}, with shuffled rewards by ${shuffled.gained}`)
  const steps = readRun(config.output).events.flatMap((e) => (e.t === 'step' ? [e.metrics] : []))
  assert.equal(steps.length, 12)
  for (const name of ['loss', 'mean_reward', 'max_reward', 'points/iou_gain', 'points/neg_in_confused_rate'])
    assert.ok(
      steps.every((metrics) => Number.isFinite(metrics[name])),
      name,
    )
})

test("the doctor passes on the miniature and prints the prototype's two checks by name", async () => {
  const { config } = readDemo(demo('doctor', '--rl.maxCompletionLength 20'))
  const findings = await doctor(config, hostOf())
  assert.deepEqual(
    findings.filter((f) => f.pass === false),
    [],
  )
  for (const name of ['gradient flow', 'vision-language input', 'points image matters'])
    assert.equal(findings.find((f) => f.name === name)?.pass, true, name)
  assert.match(findings.find((f) => f.name === 'answer')!.detail, /16 of the image of 112 x 112/)
})

test("the prototype's script starts a run from its config file", () => {
  const file = join(folder, 'negative_points_config.yaml')
  const lines = [
    ...['model_path: assets/points-miniature/policy', 'sam_checkpoint: assets/points-miniature/sam2'],
    ...['train_data: neighbours:8', 'image_size: 112', 'max_points: 1', 'group_size: 2', 'max_new_tokens: 20'],
    ...['batch_size: 1', 'gradient_accumulation_steps: 1', 'lora_r: 4', 'lora_alpha: 8', 'clip_lower: -0.2'],
    ...['points.wording: short', 'device: cpu', 'dtype: float32', 'threads: 1', 'evalRecords: 0'],
  ]
  writeFileSync(file, `${lines.join('\n')}\n`)
  const words = ['--output_dir', join(folder, 'prototype'), '--config', file, '--max_steps', '1']
  const done = spawnSync(join(root, 'scripts/train_negative_points.sh'), words, { cwd: root, encoding: 'utf8' })
  assert.equal(done.status, 0, done.stderr)
  const run = readRun(join(folder, 'prototype'))
  assert.equal(run.events.filter((e) => e.t === 'step').length, 1)
})
