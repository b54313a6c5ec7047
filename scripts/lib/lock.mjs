// A lock file that names its owner. The owner renews it; a lock whose process has ended, or that nobody renews, is broken.
import { mkdirSync, readFileSync, readlinkSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const renewEvery = 5000 // ms
const silentFor = 30_000 // ms without a renewal, by our clock (another host's may differ): the owner has ended
const oldAfter = 10 * 60_000 // ms since the last renewal when we first see the lock

/** Host and PID namespace: a process can be found by its pid only in the same ones (a container has its own namespace). */
function place() {
  try {
    return `${hostname()} ${readlinkSync('/proc/self/ns/pid')}`
  } catch {
    return hostname()
  }
}

function running(pid) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    if (error.code === 'ESRCH') return false
    if (error.code === 'EPERM') return true
    throw error
  }
}

/** The current content of the lock; null: released. */
function look(path) {
  try {
    const [pid, ...where] = readFileSync(path, 'utf8').trim().split(' ')
    const number = /^\d+$/.test(pid) ? Number(pid) : null
    return { pid: number, where: where.join(' '), renewed: statSync(path).mtimeMs }
  } catch (error) {
    if (error.code === 'ENOENT') return null
    throw error
  }
}

/** `quiet`: ms that we have seen no renewal. */
function orphaned({ pid, where, renewed }, quiet) {
  const here = where === place() || where === hostname() // 0.1.0 wrote no namespace
  if (pid !== null && here && !running(pid)) return true // a running process with that pid may be another one
  if (pid === null && Date.now() - renewed > renewEvery) return true // its owner ended before it wrote its name
  return quiet > silentFor || Date.now() - renewed > oldAfter
}

const ownerOf = ({ pid, where }) =>
  pid === null ? 'another set-up' : `another set-up (process ${pid} on ${where.split(' ')[0] || 'this host'})`

function take(path) {
  try {
    writeFileSync(path, `${process.pid} ${place()}`, { flag: 'wx' })
    return true
  } catch (error) {
    if (error.code === 'EEXIST') return false
    throw error
  }
}

function renew(path) {
  try {
    const now = new Date()
    utimesSync(path, now, now)
  } catch {
    // another process broke the lock: the build is renamed into place, so two builders only cost time
  }
}

async function acquire(path, onWait) {
  let [since, renewed, waited] = [performance.now(), null, false]
  while (!take(path)) {
    const seen = look(path)
    if (seen === null) continue
    if (seen.renewed !== renewed) [since, renewed] = [performance.now(), seen.renewed]
    if (orphaned(seen, performance.now() - since)) {
      rmSync(path, { force: true })
      continue
    }
    if (!waited) onWait(ownerOf(seen))
    waited = true
    await sleep(200)
  }
}

/** Runs body while holding the lock; `onWait` gets the owner's name. Two processes that break the same lock at once may both run. */
export async function withLock(path, onWait, body) {
  mkdirSync(dirname(path), { recursive: true })
  await acquire(path, onWait)
  const renewal = setInterval(renew, renewEvery, path)
  const release = () => rmSync(path, { force: true })
  process.once('exit', release)
  try {
    return await body()
  } finally {
    clearInterval(renewal)
    process.off('exit', release)
    release()
  }
}
