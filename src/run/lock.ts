// Only one process writes a run folder. The lock file names its host, process and start; the lock of an ended process is taken over.
import { randomUUID } from 'node:crypto'
import {
  closeSync,
  existsSync,
  linkSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { hostname } from 'node:os'
import { dirname, join } from 'node:path'
import { diskTrouble, isObject, Mismatch, readTextFile, refuseAt } from '../core/index.ts'

interface Owner {
  host: string
  /** PID namespace, which each container has: a process is known by its number only in there. Absent in locks of 0.1.0. */
  pidSpace?: string | null
  pid: number
  /** Start of the process, in clock ticks since the machine booted: a pid alone may have been given again. */
  born: string | null
  since: string
  token: string
}

export interface RunLock {
  /** Shows other hosts that the owner is running. */
  touch(): void
  release(): void
}

/** A process of another host or container cannot be asked for: its lock counts as left when it was not touched for this long. */
const silentAfter = 15 * 60_000 // ms

export const lockFile = 'run.lock'

export function lockRun(dir: string): RunLock {
  const path = join(dir, lockFile)
  const own: Owner = {
    host: hostname(),
    pidSpace: ownPidSpace(),
    pid: process.pid,
    born: bornAt(process.pid),
    since: new Date().toISOString(),
    token: randomUUID(),
  }
  for (let attempt = 0; !tryCreate(path, own); attempt++) {
    const owner = readOwner(path)
    if (owner && (attempt > 8 || isAlive(owner, path))) refuse(dir, owner)
    takeAway(path)
  }
  return {
    touch: () => touch(path, own),
    release: () => {
      if (readOwner(path)?.token === own.token) rmSync(path, { force: true })
    },
  }
}

/** Complete at once if the file system has hard links: nobody takes an empty lock for one that a dead process left. */
function tryCreate(path: string, owner: Owner): boolean {
  const text = `${JSON.stringify(owner)}\n`
  const whole = `${path}.${owner.token}`
  try {
    writeFileSync(whole, text)
    linkSync(whole, path)
    return true
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') return false
    if (syscall !== 'link') throw error
    return writeNew(path, text)
  } finally {
    rmSync(whole, { force: true })
  }
}

function writeNew(path: string, text: string): boolean {
  try {
    writeFileSync(path, text, { flag: 'wx' })
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

/**
 * A lock that somebody deleted, with its folder or alone, is restored if its folder exists. A process that slept for long (a
 * stopped job, a machine in standby) may find the folder in other hands: two must not write it. A failing disk does not end the run.
 */
function touch(path: string, own: Owner): void {
  try {
    if (!existsSync(path)) tryCreate(path, own)
    markWritten(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' && !diskTrouble(error)) throw error
  }
  const owner = readOwner(path)
  if (owner && owner.token !== own.token) refuse(dirname(path), owner)
}

/** On the clock of the file system, which all hosts share: its first byte is written once more, the same in every lock. */
function markWritten(path: string): void {
  const fd = openSync(path, 'r+')
  try {
    writeSync(fd, '{', 0)
  } finally {
    closeSync(fd)
  }
}

/** Null when there is none, or not a whole one: a process that wrote it died. */
function readOwner(path: string): Owner | null {
  try {
    const owner: unknown = JSON.parse(readTextFile(path))
    return isOwner(owner) ? owner : null
  } catch {
    return null
  }
}

function isOwner(value: unknown): value is Owner {
  if (!isObject(value)) return false
  const { host, pid, born, since, token } = value
  const isBorn = born === null || typeof born === 'string'
  return isBorn && Number.isInteger(pid) && [host, since, token].every((text) => typeof text === 'string')
}

/** Renamed first: of two that find it stale, one gets it. No lock is a folder, a pipe or a link. */
function takeAway(path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isFile() === false)
    throw new Mismatch({ where: path, expected: 'a file, or nothing', got: 'a folder, a pipe or a link' })
  const aside = `${path}.${randomUUID()}`
  try {
    renameSync(path, aside)
    rmSync(aside, { force: true })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

function ownPidSpace(): string | null {
  try {
    return readlinkSync('/proc/self/ns/pid')
  } catch {
    return null
  }
}

function isAlive({ host, pidSpace = ownPidSpace(), pid, born }: Owner, path: string): boolean {
  if (host !== hostname() || pidSpace !== ownPidSpace()) {
    const touched = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0
    return fileSystemNow(path) - touched < silentAfter
  }
  const now = bornAt(pid)
  return now !== null && (born === null || born === now)
}

/** The clocks of hosts differ; files of one folder are compared on the clock of their file system. */
function fileSystemNow(path: string): number {
  const fresh = `${path}.${randomUUID()}`
  try {
    writeFileSync(fresh, '')
    return statSync(fresh).mtimeMs
  } finally {
    rmSync(fresh, { force: true })
  }
}

/** Null when there is no such process, or one that has ended and was not fetched. */
function bornAt(pid: number): string | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' || fields[0] === 'X' ? null : (fields[19] ?? null)
  } catch {
    return null
  }
}

function refuse(dir: string, { host, pidSpace = ownPidSpace(), pid, since }: Owner): never {
  const place = host === hostname() && pidSpace !== ownPidSpace() ? `${host}, in another container,` : host
  const got = `one that process ${pid} on ${place} has been writing since ${since}`
  const hint = `wait for it, stop it, or choose another output folder; if that process has ended, remove ${join(dir, lockFile)}`
  return refuseAt(dir)(lockFile, 'a run folder that nobody writes to', got, hint)
}
