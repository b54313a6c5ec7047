// A lock file that names its owner; a lock whose process is gone is broken.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { mtimeOf } from './record.mjs'

const longest = 30 * 60_000 // of another host on a shared home: its processes cannot be asked

function alive(path) {
  try {
    const [pid, host] = readFileSync(path, 'utf8').split(' ')
    if (host !== hostname()) return Date.now() - (mtimeOf(path) ?? 0) < longest
    process.kill(Number(pid), 0)
    return true
  } catch (error) {
    if (error.code === 'EPERM') return true
    if (error.code === 'ESRCH' || error.code === 'ENOENT') return false
    throw error
  }
}

function take(path) {
  try {
    writeFileSync(path, `${process.pid} ${hostname()}`, { flag: 'wx' })
    return true
  } catch (error) {
    if (error.code === 'EEXIST') return false
    throw error
  }
}

/** Runs body while holding the lock. Two processes that break the same dead lock at once may both run: the build renames into place, so that costs time only. */
export async function withLock(path, onWait, body) {
  mkdirSync(dirname(path), { recursive: true })
  for (let waited = false; !take(path); waited = true) {
    if (!alive(path)) {
      rmSync(path, { force: true })
      continue
    }
    if (!waited) onWait()
    await sleep(200)
  }
  const release = () => rmSync(path, { force: true })
  process.once('exit', release)
  try {
    return await body()
  } finally {
    process.off('exit', release)
    release()
  }
}
