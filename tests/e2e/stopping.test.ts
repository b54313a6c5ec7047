// How a run ends: lost terminals, schedulers, a scorer that hangs, a second run in the same folder. Real processes, real signals.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { newestValid } from '../../src/checkpoint/index.ts'
import { freePort } from '../invariant/distributed-ranks.ts'
import { heldReward } from '../support/held-reward.ts'
import { makeToy, scratch } from '../support/runs.ts'
import { program, roundtrip, type Started, start, startProgram } from './cli.ts'

const folder = scratch('stopping')
const at = (name: string) => join(folder, name)
const toy = makeToy(at('toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const small = [
  ...'--dataPath scenes:24 --data.workers 0 --evalRecords 0 --saveSteps 0 --batchSize 1 --rl.numGenerations 2'.split(
    ' ',
  ),
  ...'--rl.maxCompletionLength 5 --lora.rank 4 --lora.alpha 8 --optim.lrSchedulerType constant'.split(' '),
]
const train = (output: string, ...more: string[]) =>
  ['train', '--model', toy, ...small, '--output', at(output), ...more] as const
/** Samples that are scored in a step: two loops of two. */
const samples = 4
/** More steps than any machine makes before the test is through. */
const endless = ['--maxSteps', '1000000']

function savedStep(output: string): number {
  const { checkpoint, invalid } = newestValid(at(output))
  assert.deepEqual(invalid, [])
  return checkpoint!.step
}

/** `held`: the scores of the second step never arrive. A hanging scorer does not keep the run from saving. */
for (const [signal, code, held] of [
  ['SIGHUP', 129, true],
  ['SIGTERM', 143, false],
  ['SIGUSR1', 138, true],
] as const) {
  const what = held ? 'while the scorer hangs saves the step before' : 'finishes the step, saves'
  test(`${signal} ${what} and ends with ${code}; the same command resumes`, async () => {
    const reward = heldReward(at(`${signal}.mjs`), samples)
    if (held) reward.hold()
    const run = start(...train(signal, ...endless, '--reward', reward.path))
    await run.seen(/train .* 1\/1000000 /)
    run.signal(signal)
    const outcome = await run.ended
    assert.equal(outcome.code, code, outcome.err)
    const step = savedStep(signal)
    assert.ok(held ? step === 1 : step >= 1, `step ${step}`)
    reward.release()
    const resumed = await roundtrip(...train(signal, '--maxSteps', String(step + 1), '--reward', reward.path))
    assert.equal(resumed.code, 0, resumed.err)
    assert.equal(savedStep(signal), step + 1)
  })
}

/** What a run prints that gets SIGTERM and ends by itself: after ten minutes it would be ended by force. */
async function endedByItself(run: Started): Promise<string> {
  run.signal('SIGTERM')
  let forced = false
  const force = setTimeout(() => {
    forced = true
    run.signal('SIGKILL')
  }, 600_000)
  const { err } = await run.ended
  clearTimeout(force)
  assert.ok(!forced, err)
  return err
}

function listens(port: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(port, '127.0.0.1', () => done(true)).on('error', () => done(false))
    socket.on('connect', () => socket.destroy())
  })
}

const soon = 'ROUNDTRIP_STOP_SECONDS=3'
const withVariables = (variables: readonly string[], args: readonly string[]) =>
  startProgram('env', ...variables, process.execPath, program, ...args)

test('SIGTERM ends a process that waits for its peers', async () => {
  const place = ['RANK=0', 'WORLD_SIZE=2', 'LOCAL_RANK=0', 'LOCAL_WORLD_SIZE=2', 'MASTER_ADDR=127.0.0.1']
  const port = await freePort()
  const run = withVariables([...place, `MASTER_PORT=${port}`, soon], train('waits', ...endless))
  while (!(await listens(port))) await new Promise((done) => setTimeout(done, 100)) // then it waits for rank 1
  assert.match(await endedByItself(run), /SIGTERM: no safe point within 3 s/)
})

test('SIGTERM ends a process in the middle of a step that does not end', async () => {
  const long = ['--rl.numGenerations', '64', '--rl.maxCompletionLength', '64', '--batchSize', '24']
  const run = withVariables([soon], train('samples', ...endless, ...long))
  await run.seen(/training/)
  await endedByItself(run)
})

test('a second run in the same folder is refused by name, and the first is unharmed', async () => {
  const reward = heldReward(at('twice.mjs'), samples)
  const command = train('twice', '--maxSteps', '3', '--saveSteps', '1', '--reward', reward.path)
  reward.hold()
  const first = start(...command)
  await first.seen(/train .* 1\/3 /)
  const second = await roundtrip(...command)
  reward.release()
  const outcome = await first.ended
  assert.notEqual(second.code, 0)
  assert.match(second.err, /run\.lock: expected a run folder that nobody writes to, got one that process \d+ on \S+/)
  assert.equal(outcome.code, 0, outcome.err)
  assert.equal(savedStep('twice'), 3)
  assert.ok(!existsSync(join(at('twice'), 'run.lock')), 'the lock is removed')
  const events = readFileSync(join(at('twice'), 'events.jsonl'), 'utf8')
    .trim()
    .split('\n')
  assert.equal(events.filter((line) => line.includes('"t":"stop"')).length, 1)
  assert.deepEqual(
    readdirSync(at('twice')).filter((name) => name.startsWith('.tmp')),
    [],
  )
})

test('a run whose rewards never differ ends with an error', async () => {
  const same = at('same.mjs')
  writeFileSync(same, "export const reward = { name: 'same', range: [0, 1], doc: 'equal', score: () => 0.5 }\n")
  const terms = JSON.stringify([{ type: 'module', path: same }])
  const both = ['--rewards.loop1.terms', terms, '--rewards.loop2.terms', terms]
  const outcome = await roundtrip(...train('same', '--maxSteps', '40', '--rl.maxCompletionLength', '3', ...both))
  assert.notEqual(outcome.code, 0)
  assert.match(outcome.err, /learning: expected steps that learn something, got 20 steps in a row/)
})

test('an evaluation that is stopped says what it does: it saves nothing', async () => {
  const run = start('eval', '--model', toy, '--data', 'scenes:100000', '--data.workers', '0', '--evalBatch', '1')
  await run.seen(/evaluation/)
  run.signal('SIGTERM')
  const { code, err } = await run.ended
  assert.equal(code, 143)
  assert.match(err, /SIGTERM: ending after these records; press/)
  assert.match(err, /stopped early: the metrics are over the records read so far/)
})
