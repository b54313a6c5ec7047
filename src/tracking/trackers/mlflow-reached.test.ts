import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { readRun } from '../run-reader.ts'
import { RunWriter } from '../run-writer.ts'
import { loggedMetrics, readReached, writeReached } from './mlflow-reached.ts'

const folder = mkdtempSync(join(tmpdir(), 'reached-'))
after(() => rmSync(folder, { recursive: true, force: true }))
const server = 'http://here/api'
const runAt = (resumedAt?: number, dir = folder) => ({ dir, name: 'run', settings: {}, resumedAt })
const store = (kept: unknown) => writeFileSync(join(folder, 'mlflow.json'), JSON.stringify(kept))

test('what a server had is read back, up to the step that the run resumes from', () => {
  writeReached(runAt(), { server, run_id: 'r', sent: 9 })
  assert.deepEqual(readReached(runAt(20), server), { server, run_id: 'r', sent: 9 })
  assert.equal(readReached(runAt(4), server)?.sent, 4, 'steps after the checkpoint are sent again')
  assert.equal(readReached(runAt(0), server)?.sent, 0, 'the first checkpoint is one too')
})

test('a new run, another server and what is not a record of a run are not resumed from', () => {
  writeReached(runAt(), { server, run_id: 'r', sent: 9 })
  assert.equal(readReached(runAt(), server), null, 'a new run in an old folder')
  assert.equal(readReached(runAt(20), 'http://there/api'), null)
  for (const kept of [{ server, sent: 9 }, { server, run_id: 3, sent: 9 }, { server, run_id: 'r', sent: 1.5 }, null]) {
    store(kept)
    assert.equal(readReached(runAt(20), server), null, JSON.stringify(kept))
  }
  rmSync(join(folder, 'mlflow.json'))
  assert.equal(readReached(runAt(20), server), null, 'nothing was kept')
})

test('a place that cannot be written to costs the record, not the run', () => {
  const dir = join(folder, 'taken')
  mkdirSync(join(dir, 'mlflow.json', 'inside'), { recursive: true })
  writeReached(runAt(undefined, dir), { server, run_id: 'r', sent: 1 })
  assert.equal(readReached(runAt(20, dir), server), null)
  assert.deepEqual(readdirSync(dir, { recursive: true }).sort(), ['mlflow.json', 'mlflow.json/inside'])
})

test('metrics of the log are those after one step and up to another, with their times', async (t) => {
  const dir = join(folder, 'log')
  let now = 1_000_000
  t.mock.method(Date, 'now', () => (now += 1000))
  const writer = RunWriter.create(dir, { config: {}, environment: {} })
  for (let step = 1; step <= 4; step++) writer.step(step, { loss: step }, { step_time: step / 2 })
  writer.eval(3, 'step 3', 2, { giou: { mean: 0.5, low: 0, high: 1 } })
  await writer.close()
  const found = [...loggedMetrics(dir, 1, 3)]
  assert.deepEqual(
    found.map(({ step, values }) => [step, values]),
    [
      [2, { loss: 2, step_time: 1 }],
      [3, { loss: 3, step_time: 1.5 }],
      [3, { 'eval/giou': 0.5 }],
    ],
  )
  const clocks = new Map(readRun(dir).timing.flatMap((line) => (line.t === 'step' ? [[line.step, line.time]] : [])))
  assert.equal(clocks.size, 4)
  assert.deepEqual(
    found.map(({ time }) => time),
    [2, 3, 3].map((step) => clocks.get(step)),
    'an evaluation has the time of its step',
  )
})

test('a pipe or a device in place of the record is not waited for', () => {
  for (const command of [['mkfifo'], ['ln', '-s', '/dev/zero']]) {
    const dir = mkdtempSync(join(folder, 'pipe-'))
    execFileSync(command[0]!, [...command.slice(1), join(dir, 'mlflow.json')])
    assert.equal(readReached(runAt(20, dir), server), null)
  }
})
