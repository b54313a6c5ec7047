import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { lockName, withRunLock } from './run-lock.ts'

const module = new URL('./run-lock.ts', import.meta.url).href

async function inFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'roundtrip-lock-'))
  try {
    await work(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Another process that holds the lock until it is killed. */
async function otherRun(folder: string) {
  const code = `const { withRunLock } = await import(${JSON.stringify(module)})
    await withRunLock(${JSON.stringify(folder)}, () => { console.log('held'); return new Promise((done) => setTimeout(done, 60000)) })`
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', code])
  await new Promise((done) => child.stdout.once('data', done))
  return child
}

test('a second run in one folder is refused and named the first; when that was killed, it is taken over', () =>
  inFolder(async (folder) => {
    const other = await otherRun(folder)
    const refused = withRunLock(folder, async () => 'ran')
    await assert.rejects(
      refused,
      new RegExp(`no other run in this folder, got process ${other.pid} of ${hostname()}, since 20`),
    )
    assert.ok(existsSync(join(folder, lockName)))
    const gone = new Promise((done) => other.once('close', done))
    other.kill('SIGKILL')
    await gone
    assert.equal(await withRunLock(folder, async () => 'ran'), 'ran')
    assert.equal(existsSync(join(folder, lockName)), false)
  }))

test('a process number that was used again does not hold a lock', () =>
  inFolder(async (folder) => {
    const owner = { host: hostname(), pid: process.pid, ticks: '1', since: '2020-01-01T00:00:00.000Z' }
    writeFileSync(join(folder, lockName), JSON.stringify(owner))
    assert.equal(await withRunLock(folder, async () => 'ran'), 'ran')
  }))

test('a lock of another host holds while it is touched', () =>
  inFolder(async (folder) => {
    const path = join(folder, lockName)
    writeFileSync(path, JSON.stringify({ host: 'elsewhere', pid: 1, ticks: '1', since: '2020-01-01T00:00:00.000Z' }))
    await assert.rejects(
      withRunLock(folder, async () => 'ran'),
      /process 1 of elsewhere/,
    )
    const old = new Date(Date.now() - 10 * 60_000)
    utimesSync(path, old, old)
    assert.equal(await withRunLock(folder, async () => readFileSync(path, 'utf8').includes(hostname())), true)
  }))

test('the lock is given back when the run fails', () =>
  inFolder(async (folder) => {
    await assert.rejects(
      withRunLock(folder, () => Promise.reject(new Error('no'))),
      /no/,
    )
    assert.equal(existsSync(join(folder, lockName)), false)
  }))
