import assert from 'node:assert/strict'
import fs, { appendFileSync, chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { RunWriter } from '../tracking/index.ts'
import { encodeLine } from '../tracking/json-lines.ts'
import { RunWatcher } from './run-watcher.ts'

const nobody = 65_534

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'watched-'))
  chmodSync(folder, 0o755)
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

function makeRun(folder: string): void {
  const writer = RunWriter.create(folder, { config: {}, environment: {} })
  writer.step(1, { loss: 1 }, {})
  writer.close()
}

const addStep = (folder: string, step: number) =>
  appendFileSync(join(folder, 'events.jsonl'), encodeLine({ t: 'step', step, metrics: { loss: step } }))

/** Root may read everything: the work runs with the rights of an ordinary user. */
async function asOrdinaryUser(work: () => Promise<void>): Promise<void> {
  const isRoot = process.getuid?.() === 0
  if (isRoot) process.seteuid?.(nobody)
  try {
    await work()
  } finally {
    if (isRoot) process.seteuid?.(0)
  }
}

async function until(is: () => boolean, what: string): Promise<void> {
  for (const end = performance.now() + 600_000; !is(); ) {
    assert.ok(performance.now() < end, what)
    await new Promise((done) => setTimeout(done, 20))
  }
}

const byName = (watched: RunWatcher, name: string) => watched.runs.find(({ run }) => run.name === name)?.run

test('a log and a subfolder that may not be read hide only themselves, and come back when they may', async (t) => {
  const root = scratch(t)
  const [good, other, hidden] = ['good', 'other', 'private/run'].map((name) => join(root, name))
  mkdirSync(join(root, 'private'))
  for (const folder of [good!, other!, hidden!]) makeRun(folder)
  const [log, folder] = [join(other!, 'events.jsonl'), join(root, 'private')]
  for (const path of [log, folder]) chmodSync(path, 0)
  const watched = new RunWatcher([root])
  t.after(() => watched.close())
  await asOrdinaryUser(async () => {
    watched.listen(() => {})
    await until(() => byName(watched, 'good')?.lastStep === 1, 'the readable run')
    assert.deepEqual(watched.runs.map(({ run }) => run.name).sort(), ['good', 'other'])
    assert.match(byName(watched, 'other')?.problems.join() ?? '', /^events\.jsonl could not be read: EACCES/)
    assert.equal(watched.problems.length, 1)
    assert.ok(watched.problems[0]?.startsWith(`${folder}: EACCES`), watched.problems[0])
  })
  for (const path of [log, folder]) chmodSync(path, 0o755)
  await until(() => byName(watched, 'run')?.lastStep === 1, 'the hidden run')
  await until(() => byName(watched, 'other')?.problems.length === 0, 'the unreadable log')
  assert.deepEqual([byName(watched, 'other')?.lastStep, watched.problems], [1, []])
})

test('a log that loses its rights while the page is open ends nothing', async (t) => {
  const root = scratch(t)
  for (const name of ['good', 'other']) makeRun(join(root, name))
  const watched = new RunWatcher([root])
  t.after(() => watched.close())
  watched.listen(() => {})
  await until(() => byName(watched, 'other')?.lastStep === 1, 'both runs')
  chmodSync(join(root, 'other', 'events.jsonl'), 0)
  for (const name of ['good', 'other']) addStep(join(root, name), 2)
  await asOrdinaryUser(() => until(() => byName(watched, 'other')?.problems.length === 1, 'the problem'))
  await until(() => byName(watched, 'good')?.lastStep === 2, 'the other run')
})

for (const code of ['EMFILE', 'EIO', 'ESTALE', 'EACCES']) {
  test(`${code} of every call on a run's files and folders ends nothing, and later everything is read`, async (t) => {
    const root = scratch(t)
    makeRun(join(root, 'a'))
    const watched = new RunWatcher([root])
    t.after(() => watched.close())
    watched.listen(() => {})
    await until(() => byName(watched, 'a')?.lastStep === 1, 'the run')
    addStep(join(root, 'a'), 2)
    for (const name of ['openSync', 'readdirSync', 'statSync', 'realpathSync'] as const) failing(t, name, root, code)
    syncBuiltinESMExports()
    const run = byName(watched, 'a')
    const isReported = () => run?.problems.some((text) => text.includes(code)) && watched.problems.length === 1
    await until(() => Boolean(isReported()), 'the problems of the log and of the folder')
    t.mock.restoreAll()
    syncBuiltinESMExports()
    assert.deepEqual([run?.lastStep, watched.problems.length], [1, 1])
    assert.equal(run?.lastSign !== undefined, true)
    await until(() => run?.lastStep === 2, 'the second step')
    assert.deepEqual(run?.problems, [])
    assert.equal(byName(watched, 'a'), run, 'the same run, not read anew')
  })
}

function failing(
  t: TestContext,
  name: 'openSync' | 'readdirSync' | 'statSync' | 'realpathSync',
  root: string,
  code: string,
) {
  const original = fs[name] as (...args: unknown[]) => unknown
  t.mock.method(fs, name, (...args: unknown[]) => {
    if (String(args[0]).startsWith(root)) throw Object.assign(new Error(`${code}: simulated, ${name}`), { code })
    return original(...args)
  })
}
