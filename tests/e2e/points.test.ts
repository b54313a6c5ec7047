// The demo of the point task, shortened, and what the prototype's users start with: real processes where a command is meant.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Binary, Field, Struct, Table, tableFromArrays, tableToIPC, vectorFromArray } from 'apache-arrow'
import { readDemo } from '../../src/cli/demo.ts'
import { train } from '../../src/host/index.ts'
import { encodePng } from '../../src/image/index.ts'
import { maskToPng } from '../../src/mask/index.ts'
import { doctor } from '../../src/run/index.ts'
import { makePointScene } from '../../src/scenes/index.ts'
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
const metrics = [
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
  const result = JSON.parse(out.trimEnd().split('\n').at(-1)!) as Record<'before' | 'after', Record<string, Interval>>
  assert.deepEqual(Object.keys(result), ['seed', 'seconds', 'before', 'after'])
  assert.deepEqual(result.after, result.before)
  for (const name of metrics)
    assert.deepEqual(Object.keys(result.before[name] ?? {}).sort(), ['high', 'low', 'mean'], name)
  assert.match(readFileSync(join(folder, 'still', 'report.html'), 'utf8'), /<circle class="point policy negative"/)
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

/** Seg-Zero's layout with generated scenes: a shard, and the masks by id. */
async function makeSegZero(folder: string, count: number): Promise<{ shards: string; masks: string }> {
  const [shards, masks] = [join(folder, 'shards'), join(folder, 'masks')]
  for (const path of [shards, masks]) mkdirSync(path, { recursive: true })
  const scenes = Array.from({ length: count }, (_, i) => makePointScene(1, i).record)
  for (const [i, { mask }] of scenes.entries()) writeFileSync(join(masks, `r${i}.png`), await maskToPng(mask))
  const images = await Promise.all(scenes.map(async ({ image }) => ({ bytes: await encodePng(image) })))
  const table = tableFromArrays({
    id: scenes.map((_, i) => `r${i}`),
    problem: scenes.map(({ query }) => query),
    solution: scenes.map(() => '<box>(0,75),(839,840)</box><points>(420,420),(7,15)</points>'),
    img_height: Int32Array.from(scenes, ({ image }) => image.height),
    img_width: Int32Array.from(scenes, ({ image }) => image.width),
  })
  const pictures = vectorFromArray(images, new Struct([new Field('bytes', new Binary())]))
  const whole = table.assign(new Table({ image: pictures }) as never)
  writeFileSync(join(shards, 'data-00000-of-00001.arrow'), tableToIPC(whole, 'stream'))
  return { shards, masks }
}

const script = (...words: string[]) =>
  spawnSync(join(root, 'scripts/train_negative_points.sh'), words, { cwd: root, encoding: 'utf8' })

test("the prototype's script trains from its config file, unchanged but for its paths", async () => {
  const { shards, masks } = await makeSegZero(folder, 4)
  const reasonSeg = join(root, 'tests/fixtures/golden/benchmarks-tiny/reason_seg/ReasonSeg/val')
  const paths: Record<string, string> = {
    'models/Seg-Zero-7B': 'assets/points-miniature/policy',
    'models/sam2.1_hiera_large.pt': 'assets/points-miniature/sam2',
    ...{ 'data/refcocog': shards, 'data/gt_masks': masks, 'data/ReasonSeg/val': reasonSeg },
  }
  const text = readFileSync(join(root, 'tests/fixtures/negative_points_config.yaml'), 'utf8')
  const file = join(folder, 'negative_points_config.yaml')
  writeFileSync(file, Object.entries(paths).reduce((all, [from, to]) => all.replace(from, to), text)) // biome-ignore format: one line
  const output = join(folder, 'prototype')
  const smaller = '--image_size 112 --group_size 2 --max_new_tokens 20 --batch_size 1 --gradient_accumulation_steps 1'
  const words = ['--config', file, '--output_dir', output, '--max_steps', '1', '--threads', '1', '--evalRecords', '2']
  const done = script(...words, ...smaller.split(' '), '--deepspeed', 'configs/deepspeed_zero2.json')
  assert.equal(done.status, 0, done.stderr)
  assert.match(done.stderr, /^deepspeed has no effect here: /m)
  assert.match(done.stderr, /^beta is points\.reward\.beta, as in the prototype/m)
  const run = readRun(output)
  assert.equal(run.events.filter((e) => e.t === 'step').length, 1)
  const held = run.events.find((e) => e.t === 'eval') as { metrics: Record<string, unknown> } | undefined
  assert.ok(held && 'points/miou' in held.metrics, JSON.stringify(held))
  const { rl, points } = JSON.parse(readFileSync(join(output, 'config.json'), 'utf8'))
  assert.deepEqual([rl.beta, points.reward.beta, points.mode], [0, 1, 'joint'])
})

test("the prototype's script explains itself if it is started without arguments", () => {
  const { status, stdout, stderr } = script()
  assert.deepEqual([status, stdout], [2, ''])
  assert.match(stderr, /^usage: scripts\/train_negative_points\.sh --config FILE --output_dir DIR/)
})
