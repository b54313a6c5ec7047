// For tests: a guard for work that must end long before a time limit of the product, and that passes on slow and busy machines.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import type { TestContext } from 'node:test'
import { createContext, Script } from 'node:vm'

/** An empty Node starts and ends in 40 ms on two idle cores of today. */
const startMs = 40

const emptyProgram = () =>
  new Promise<void>((done) => {
    const env = { ...process.env, NODE_OPTIONS: '' }
    spawn(process.execPath, ['-e', '0'], { stdio: 'ignore', env }).on('close', () => done())
  })

/** The result of `work`, which takes less than `ms` on an idle machine. Ten times that is allowed, then what as many starts of Node take. */
export async function inTime<T>(t: TestContext, what: string, ms: number, work: Promise<T>): Promise<T> {
  const startedAt = performance.now()
  let [ended, starts] = [false, 0]
  let timer: NodeJS.Timeout | undefined
  const done = work.finally(() => {
    ended = true
    clearTimeout(timer)
  })
  const clock = new Promise<void>((late) => {
    timer = setTimeout(late, 10 * ms)
  })
  await Promise.race([done, clock])
  for (; !ended && starts < ms / startMs; starts++) await emptyProgram()
  const text = `${what}: ${Math.round(performance.now() - startedAt)} ms, ${starts} starts of Node after ${10 * ms} ms`
  t.diagnostic(text)
  assert.ok(ended, text)
  return done
}

/** The result of `work`, which takes no time and is stopped after a minute: it would take hours if it were more than one pass. */
export function withinMinute<T>(work: () => T): T {
  return new Script('work()').runInContext(createContext({ work }), { timeout: 60_000 }) as T
}
