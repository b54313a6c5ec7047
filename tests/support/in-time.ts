// For tests: bounds in seconds that hold on slow and busy machines too. What 2 s are there is measured beside the work.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import type { TestContext } from 'node:test'

/** An empty Node starts and ends in 40 ms on two idle cores of today. */
const startMs = 40

const emptyProgram = () =>
  new Promise<void>((done) => spawn(process.execPath, ['-e', '0'], { stdio: 'ignore' }).on('close', () => done()))

/** What `work` gives. Fails where it took longer than `ms`, and longer than as many starts of an empty program as take that long. */
export async function inTime<T>(t: TestContext, what: string, ms: number, work: Promise<T>): Promise<T> {
  const startedAt = performance.now()
  let ended = false
  let starts = 0
  const done = work.finally(() => {
    ended = true
  })
  done.catch(() => undefined)
  while (!ended) {
    await emptyProgram()
    if (!ended) starts++
  }
  const result = await done
  const took = performance.now() - startedAt
  const text = `${what}: ${Math.round(took)} ms, in which ${starts} empty programs were started and ended`
  t.diagnostic(text)
  assert.ok(took <= ms || starts <= ms / startMs, text)
  return result
}
