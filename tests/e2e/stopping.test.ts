// How a run ends: lost terminals, schedulers, a scorer that hangs, a second run in the same folder. Real processes, real signals.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { newestValid } from '../../src/checkpoint/index.ts'
import { roundtrip, start } from './cli.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-stopping-'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

const quick = '--batchSize 1 --rl.numGenerations 2 --rl.maxCompletionLength 8 --evalRecords 0 --saveSteps 0'.split(' ')
const train = (output: string, ...more: string[]) =>
  ['train', '--recipe', 'demo', '--model', 'assets/miniature', ...quick, '--output', at(output), ...more] as const

function savedStep(output: string): number {
  const { checkpoint, invalid } = newestValid(at(output))
  assert.deepEqual(invalid, [])
  return checkpoint!.step
}

/** Waits until the step is in the log; a run that ended instead fails the test by its time limit. */
async function loggedStep(output: string, step: number): Promise<void> {
  const path = join(at(output), 'events.jsonl')
  for (let i = 0; i < 1200; i++) {
    if (existsSync(path) && readFileSync(path, 'utf8').includes(`"t":"step","step":${step},`)) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  assert.fail(`step ${step} was not logged in a minute`)
}

for (const [signal, code] of [
  ['SIGHUP', 129],
  ['SIGTERM', 143],
  ['SIGUSR1', 138],
] as const) {
  test(`${signal} finishes the step, saves and ends with ${code}; the same command goes on`, async () => {
    const run = start(...train(signal, '--maxSteps', '1000'))
    await run.seen(/train .* 1\/1000 /)
    run.signal(signal)
    const outcome = await run.ended
    assert.equal(outcome.code, code, outcome.err)
    const step = savedStep(signal)
    assert.ok(step >= 1)
    const resumed = await roundtrip(...train(signal, '--maxSteps', String(step + 1)))
    assert.equal(resumed.code, 0, resumed.err)
    assert.equal(savedStep(signal), step + 1)
  })
}

test('a scorer that hangs does not keep a run from saving: SIGTERM ends it, and the step is sampled again', async () => {
  const hang = at('hang.mjs')
  const score = 'score: ({ id }) => (calls++ < 8 ? Number(id.at(-1)) / 10 : new Promise(() => {}))'
  writeFileSync(hang, `let calls = 0\nexport const reward = { name: 'hang', range: [0, 1], doc: 'hangs', ${score} }\n`)
  const run = start(...train('hang', '--maxSteps', '1000', '--reward', hang))
  await run.seen(/train .* 1\/1000 /)
  await loggedStep('hang', 2)
  const from = performance.now()
  run.signal('SIGTERM')
  const outcome = await run.ended
  assert.equal(outcome.code, 143, outcome.err)
  assert.ok(performance.now() - from < 30_000, 'a machine ten times slower stays below it')
  assert.equal(savedStep('hang'), 2)
})

test('a second run in the same folder is refused by name, and the first is unharmed', async () => {
  const first = start(...train('twice', '--maxSteps', '12', '--saveSteps', '1'))
  await first.seen(/train .* 1\/12 /)
  const second = await roundtrip(...train('twice', '--maxSteps', '12', '--saveSteps', '1'))
  assert.notEqual(second.code, 0)
  assert.match(second.err, /run\.lock: expected a run folder that nobody writes to, got one that process \d+ on \S+/)
  const outcome = await first.ended
  assert.equal(outcome.code, 0, outcome.err)
  assert.equal(savedStep('twice'), 12)
  assert.ok(!existsSync(join(at('twice'), 'run.lock')))
  const events = readFileSync(join(at('twice'), 'events.jsonl'), 'utf8')
    .trim()
    .split('\n')
  assert.equal(events.filter((line) => line.includes('"t":"stop"')).length, 1)
  assert.ok(readdirSync(at('twice')).every((name) => !name.startsWith('.tmp')))
})

test('a run whose rewards never differ ends in words, not with success', async () => {
  const same = at('same.mjs')
  writeFileSync(same, "export const reward = { name: 'same', range: [0, 1], doc: 'equal', score: () => 0.5 }\n")
  const terms = JSON.stringify([{ type: 'module', path: same }])
  const both = ['--rewards.loop1.terms', terms, '--rewards.loop2.terms', terms]
  const outcome = await roundtrip(...train('same', '--maxSteps', '40', '--rl.maxCompletionLength', '3', ...both))
  assert.notEqual(outcome.code, 0)
  assert.match(outcome.err, /learning: expected steps that learn something, got 20 steps in a row/)
})
