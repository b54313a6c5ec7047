// A run whose reward invites a trick, from its alarm to the pages that show it, and two models compared on its held-out records.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readRun } from '../../src/tracking/index.ts'
import { hackSettings } from '../soak/hacks.ts'
import { scratch } from '../support/runs.ts'
import { roundtrip } from './cli.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = scratch('behaviour')
after(() => rmSync(folder, { recursive: true, force: true }))
const [run, miniature] = [join(folder, 'run'), join(root, 'assets/miniature')]

test('an empty mask that scores best raises its alarm, which terminal and report show first', async () => {
  const settings = join(folder, 'settings.yaml')
  writeFileSync(settings, hackSettings('empty-mask'))
  const small = ['--maxSteps', '11', '--batchSize', '4', '--evalPath', 'scenes:4:9001', '--evalRecords', '4']
  const words = ['--recipe', 'demo', '--recipe', settings, '--model', miniature, '--output', run]
  const { code, err } = await roundtrip('train', ...words, ...small)
  assert.equal(code, 0, err)
  const alarm = readRun(run).events.find((event) => event.t === 'warning' && event.kind === 'alarm/empty-mask')
  assert.ok(alarm?.t === 'warning' && alarm.samples?.length === 4, err)
  assert.match(err, /warn: loop2: empty masks: \d+ % to \d+ %, reward .* Suggestion: an empty mask scores too well/)
  const printed = await roundtrip('report', run, '--behaviour')
  assert.match(
    printed.out.split('\n').find((line) => line.includes('empty-mask'))!,
    /^alarm empty-mask, step 1\d: loop2: /,
  )
  assert.match(printed.out, /4 equal|worse, .*held-out records, mask\/giou, step 0 against step 11/)
  const { alarms, tasks, pairs } = JSON.parse((await roundtrip('report', run, '--behaviour', '--json')).out)
  assert.deepEqual(alarms.find(({ kind }: { kind: string }) => kind === 'empty-mask').samples, alarm.samples)
  assert.equal(tasks[0].name, 'loop2')
  assert.equal(pairs.wins + pairs.losses + pairs.ties, 4)
  assert.equal((await roundtrip('report', run)).code, 0)
  const page = readFileSync(join(run, 'report.html'), 'utf8')
  const alarmAt = page.indexOf('class="alarm card"')
  assert.ok(alarmAt > 0 && alarmAt < page.indexOf('class="facts card"'), 'before the facts of the run')
  assert.match(page.slice(alarmAt, page.indexOf('class="facts card"')), /<image [^>]*href="data:image\/png/)
})

test('compare gives the metrics of both evaluations of the run, the records that changed, and a page', async () => {
  const out = join(folder, 'compared')
  const { code, out: text, err } = await roundtrip('compare', miniature, run, '--out', out, '--json')
  assert.equal(code, 0, err)
  const found = JSON.parse(text)
  const rounds = readRun(run).events.flatMap((event) => (event.t === 'eval' ? [event] : []))
  for (const name of ['mask/giou', 'mask/ciou', 'caption/meteor']) {
    const { before, after: last, change } = found.metrics[name]
    for (const [value, round] of [
      [before, rounds[0]],
      [last, rounds.at(-1)],
    ] as const)
      assert.ok(Math.abs(value - round!.metrics[name]!.mean) < 1e-6, `${name}: ${value}`)
    assert.ok(Math.abs(change.mean - (last - before)) < 1e-12)
  }
  assert.equal(found.records, 4)
  assert.equal(found.wins + found.losses + found.ties, 4)
  assert.deepEqual(
    found.sides.map(({ trainedOn }: { trainedOn: number | null }) => trainedOn),
    [null, 0],
  )
  assert.ok(existsSync(found.page) && /data:image\/png/.test(readFileSync(found.page, 'utf8')))
})

test('compare names what is missing', async () => {
  assert.match((await roundtrip('compare', run)).err, /expected two runs or model folders, A B/)
  assert.match((await roundtrip('compare', run, join(folder, 'nothing'))).err, /expected a run or a model folder/)
})
