// A run that is resumed with more steps says so in every place that shows it.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { cardOfRun, renderReport } from '../../src/dashboard/index.ts'
import { summaryOf } from '../../src/dashboard/views.ts'
import { overStored, resolveRun, resumedSettings, train } from '../../src/run/index.ts'
import { FollowedRun, readRun, startFacts } from '../../src/tracking/index.ts'
import { hostOf, makeToy, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('resumed')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const output = join(folder, 'longer')
const given = { evalRecords: 3, evalBatch: 3, maxSteps: 1, rl: { numGenerations: 2 } }

test('one more step: result, settings, report, live page and model card have the new number of steps', async () => {
  const first = await train(toyRun(toy, output, given), hostOf())
  const config = resolveRun(overStored(resumedSettings(output), { output, maxSteps: 2 }))
  assert.equal(config.rl.numGenerations, 2, 'what is not given is as the run has it')
  const second = await train(config, hostOf())
  assert.deepEqual([second.step, second.before, second.evaluated], [2, first.before, first.evaluated])
  assert.ok(second.after)

  assert.equal(JSON.parse(readFileSync(join(output, 'config.json'), 'utf8')).maxSteps, 2)
  const run = readRun(output)
  const { total, records, trained, held_out } = startFacts(run.events)
  assert.deepEqual([total, records], [2, 24])
  assert.equal(Number(trained) + Number(held_out), 24)
  const page = String(await renderReport(run))
  assert.match(page, /<dt>steps<\/dt><dd>2<\/dd>/)
  assert.match(page, /<dt>maxSteps<\/dt><dd>2<\/dd>/)
  const live = new FollowedRun(output)
  while (live.poll()) {}
  assert.equal(summaryOf({ id: 'x', run: live }).total, 2)
  const card = cardOfRun(run, 2)
  assert.ok(card.recipe.some(([name, value]) => name === 'maxSteps' && value === '2'))
  assert.deepEqual(card.data, {
    name: 'scenes:24',
    records: 24,
    trained,
    heldOut: held_out,
    evaluated: second.evaluated,
  })
  assert.deepEqual([card.before, card.after], [first.before, second.after])
})

test('the same number of steps adds no second start to the log', async () => {
  const starts = () => readRun(output).events.filter((event) => event.t === 'start').length
  const count = starts()
  await train(resolveRun(overStored(resumedSettings(output), { output })), hostOf())
  assert.equal(starts(), count)
})

test('fewer steps than are done are refused, and settings and log stay', async () => {
  const files = () => ['config.json', 'events.jsonl'].map((name) => readFileSync(join(output, name), 'utf8'))
  const before = files()
  const config = resolveRun(overStored(resumedSettings(output), { output, maxSteps: 1 }))
  await assert.rejects(
    train(config, hostOf()),
    /longer: maxSteps: expected at least 2, as many as are done, got 1\. .*more/,
  )
  assert.deepEqual(files(), before)
})
