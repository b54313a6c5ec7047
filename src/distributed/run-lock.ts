// One run folder, one run. The lock names who has it; one whose process is gone is taken over.
import { randomBytes } from 'node:crypto'
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { log, Mismatch } from '../core/index.ts'

export const lockName = 'run.lock'

interface Owner {
  host: string
  pid: number
  /** Start of the process in clock ticks since boot: a number that is used again has another one. */
  ticks: string
  since: string
}

/** A lock is touched this often, and one of another host counts as left behind when it was not for six times as long; ms. */
const touchEvery = 20_000
const silentFor = 6 * touchEvery

/** Runs `work` as the only run in the folder. */
export async function withRunLock<T>(folder: string, work: () => Promise<T>): Promise<T> {
  mkdirSync(folder, { recursive: true })
  const path = join(folder, lockName)
  take(path)
  const timer = setInterval(() => touch(path), touchEvery)
  timer.unref()
  try {
    return await work()
  } finally {
    clearInterval(timer)
    rmSync(path, { force: true })
  }
}

function touch(path: string): void {
  const now = new Date()
  try {
    utimesSync(path, now, now)
  } catch {
    log.warn(`${path}: the lock of this run is gone; do not start another one here`)
  }
}

/** A link either makes the name or fails: two processes cannot both succeed, and nobody reads half a file. */
function take(path: string): void {
  const own: Owner = {
    host: hostname(),
    pid: process.pid,
    ticks: ticksOf(process.pid),
    since: new Date().toISOString(),
  }
  const draft = `${path}.${randomBytes(4).toString('hex')}`
  writeFileSync(draft, `${JSON.stringify(own)}\n`)
  try {
    for (let tries = 0; tries < 3; tries++) {
      if (linked(draft, path)) return
      const owner = readOwner(path)
      if (!owner) continue // it was given back in between
      if (isUsed(owner, path, draft)) throw refusal(path, owner)
      log.info(`${path}: process ${owner.pid} of ${owner.host} left it behind`)
      setAside(path, owner)
    }
    throw refusal(path, readOwner(path))
  } finally {
    rmSync(draft, { force: true })
  }
}

function linked(draft: string, path: string): boolean {
  try {
    linkSync(draft, path)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function readOwner(path: string): Owner | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Owner
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw new Mismatch({
      where: path,
      expected: 'the lock of a run',
      got: error,
      hint: 'remove it if no run is at work here',
    })
  }
}

/** On this host the process decides; elsewhere the last touch, by the clock of the file system. */
function isUsed(owner: Owner, path: string, fresh: string): boolean {
  if (owner.host === hostname()) return ticksOf(owner.pid) === owner.ticks
  const age = statSync(fresh).mtimeMs - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0)
  return age < silentFor
}

/** '' where there is no such process. */
function ticksOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const [state, ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return state === 'Z' ? '' : rest[18]! // field 22 of proc(5)
  } catch {
    return ''
  }
}

/** Takes the lock that was judged out of the way, not one that came in between. */
function setAside(path: string, judged: Owner): void {
  const aside = `${path}.${randomBytes(4).toString('hex')}`
  try {
    renameSync(path, aside)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw error
  }
  const moved = readOwner(aside)
  if (JSON.stringify(moved) !== JSON.stringify(judged)) linked(aside, path)
  rmSync(aside, { force: true })
}

function refusal(path: string, owner: Owner | null): Mismatch {
  const who = owner ? `process ${owner.pid} of ${owner.host}, since ${owner.since}` : 'another run'
  const hint = `wait for it, stop it, or choose another output folder; if it is surely gone, remove ${path}`
  return new Mismatch({ where: path, expected: 'no other run in this folder', got: who, hint })
}
