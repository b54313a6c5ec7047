// The demo as a user starts it, shortened: real processes in a separate folder.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { Interval } from '../../src/tracking/index.ts'
import type { Outcome } from './cli.ts'

const program = fileURLToPath(new URL('../../bin/roundtrip.mjs', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'roundtrip-demo-'))
const run = join(folder, 'runs', 'demo-seed-3')
const short = ['--seed', '3', '--maxSteps', '2', '--batchSize', '1', '--evalRecords', '4']

after(() => rmSync(folder, { recursive: true, force: true }))

/** `stopAt`: SIGINT as soon as standard error matches. */
function demo(args: readonly string[], stopAt?: RegExp): Promise<Outcome> {
  const child = spawn(process.execPath, [program, 'demo', ...args], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  const outcome: Outcome = { code: null, out: '', err: '' }
  let stopped = false
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    outcome.out += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    outcome.err += text
    if (stopped || !stopAt?.test(outcome.err)) return
    stopped = true
    child.kill('SIGINT')
  })
  return new Promise((done) => child.on('close', (code) => done({ ...outcome, code })))
}

interface Metrics {
  seed: number
  seconds: number
  before: Record<string, Interval>
  after: Record<string, Interval>
}

function lastLine({ code, out, err }: Outcome): Metrics {
  assert.equal(code, 0, err)
  return JSON.parse(out.trimEnd().split('\n').at(-1)!) as Metrics
}

const configOf = () => JSON.parse(readFileSync(join(run, 'config.json'), 'utf8')) as { optim: { learningRate: number } }

let first: Metrics

test('without a learning rate the metrics before and after are equal, and the last line holds them', async () => {
  const outcome = await demo([...short, '--rl.learningRate', '0', '--json'])
  first = lastLine(outcome)
  assert.deepEqual(Object.keys(first), ['seed', 'seconds', 'before', 'after'])
  assert.equal(first.seed, 3)
  assert.ok(first.seconds > 0)
  assert.deepEqual(first.after, first.before)
  for (const metric of ['caption/meteor', 'mask/giou', 'cycle/iou', 'cycle/meteor'])
    assert.deepEqual(Object.keys(first.before[metric]!).sort(), ['high', 'low', 'mean'], metric)
  assert.match(outcome.out, /metric +before \[95 %\] +after \[95 %\] +change +apart$/m)
  assert.match(outcome.out, /^report runs\/demo-seed-3\/report\.html$/m)
  assert.match(outcome.err, /train .* 2\/2 .*loop1 \S+ +loop2 \S+/)
  assert.match(readFileSync(join(run, 'report.html'), 'utf8'), /^<!doctype html>/)
})

test('the next run of the seed replaces the folder and starts from the same metrics', async () => {
  const again = lastLine(await demo([...short, '--loop2.actionStd', '1', '--json']))
  assert.deepEqual(again.before, first.before)
  assert.ok(configOf().optim.learningRate > 0)
})

test('an --output folder that has a run is not replaced', async () => {
  const refused = await demo([...short, '--output', run])
  assert.equal(refused.code, 1)
  assert.match(refused.err, /output: expected a folder without a run/)
  assert.ok(existsSync(join(run, 'report.html')))
})

test('a demo stopped by SIGINT ends with 130 and its report, without metrics after', async () => {
  const stopped = await demo([...short, '--maxSteps', '100000', '--json'], /train .* 1\/100000 /)
  assert.equal(stopped.code, 130, stopped.err)
  assert.equal(stopped.out, '')
  assert.match(stopped.err, /stopped after step \d+: no metrics after training; report runs\/demo-seed-3\/report\.html/)
  assert.ok(existsSync(join(run, 'report.html')))
})

test('twenty steps of loop 2 make the masks grow, from the caption reward alone', async () => {
  const alone = '--loop1.weight 0 --train mask_decoder --lrScale.mask_decoder 0.5 --maxSteps 20 --batchSize 8'.split(
    ' ',
  )
  const { before, after: end } = lastLine(await demo([...short, ...alone, '--evalRecords', '48', '--json']))
  const gained = end['mask/giou']!.mean - before['mask/giou']!.mean
  assert.ok(gained > 0.03, `mask/giou ${before['mask/giou']!.mean} to ${end['mask/giou']!.mean}`)
  assert.deepEqual(end['caption/meteor'], before['caption/meteor']) // nothing that speaks was trained
})
