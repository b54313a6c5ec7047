import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'node:test'
import { comparison, readDemo, verdict } from './demo.ts'
import { openBrowser, watchBeside } from './watch.ts'

const of = (low: number, mean: number, high: number) => ({ low, mean, high })

test('intervals are apart only when they share no value', () => {
  assert.equal(verdict(of(0.1, 0.2, 0.3), of(0.31, 0.4, 0.5)), 'higher')
  assert.equal(verdict(of(0.31, 0.4, 0.5), of(0.1, 0.2, 0.3)), 'lower')
  assert.equal(verdict(of(0.1, 0.2, 0.3), of(0.3, 0.4, 0.5)), 'no')
})

test('the table has a row per metric with the change and its sign', () => {
  const rows = comparison(
    { a: of(0.1, 0.2, 0.3), b: of(0, 0.5, 1) },
    { a: of(0.4, 0.5, 0.6), b: of(0, 0.25, 1) },
  ).split('\n')
  assert.match(rows[1]!, /^a +0\.200 \[0\.100, 0\.300\] +0\.500 \[0\.400, 0\.600\] +\+0\.300 +higher$/)
  assert.match(rows[2]!, /-0\.250 +no$/)
})

test('the table of the demo fits 80 columns', () => {
  const before = { 'answer/seg_rate': of(1, 1, 1), 'caption/meteor': of(0.1, 0.2, 0.3) }
  const after = { 'answer/seg_rate': of(1, 1, 1), 'caption/meteor': of(0.4, 0.5, 0.6) }
  for (const line of comparison(before, after).split('\n')) assert.ok(line.length <= 80, line)
})

test('the run folder follows the seed unless one is named', () => {
  assert.equal(readDemo([]).config.output, 'runs/demo-seed-42')
  assert.equal(readDemo(['--seed', '7']).config.output, 'runs/demo-seed-7')
  const named = readDemo(['--output', 'elsewhere'])
  assert.deepEqual([named.config.output, named.freshName], ['elsewhere', false])
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

test('the page beside a run is served at the told address, opened by the desktop, and ends when it is closed', async () => {
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
