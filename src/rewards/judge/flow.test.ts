import assert from 'node:assert/strict'
import test, { type TestContext } from 'node:test'
import { Pacer } from './flow.ts'

/** A clock that stops until all pending work is done, then jumps to the next timer. */
function clockOf(t: TestContext) {
  let now = 1000
  const timers: { at: number; done: () => void }[] = []
  t.mock.method(performance, 'now', () => now)
  t.mock.method(globalThis, 'setTimeout', (done: () => void, ms: number) => void timers.push({ at: now + ms, done }))
  const settle = () => new Promise((done) => setImmediate(done))
  return {
    now: () => now - 1000,
    async run(): Promise<void> {
      for (await settle(); timers.length > 0; await settle()) {
        timers.sort((a, b) => a.at - b.at)
        const { at, done } = timers.shift()!
        now = at
        done()
      }
    },
  }
}

test('so many requests a minute: each starts one interval after the one before', async (t) => {
  const clock = clockOf(t)
  const pacer = new Pacer(1200)
  const turns: number[] = []
  const all = Array.from({ length: 5 }, () => pacer.turn().then(() => turns.push(clock.now())))
  await clock.run()
  await Promise.all(all)
  assert.deepEqual(turns, [0, 50, 100, 150, 200])
})

test('a pause that the server asks for holds everybody, the longest one counts', async (t) => {
  const clock = clockOf(t)
  const pacer = new Pacer(0)
  pacer.pause(300)
  pacer.pause(100)
  const turns: number[] = []
  const all = [0, 1].map(() => pacer.turn().then(() => turns.push(clock.now())))
  await clock.run()
  await Promise.all(all)
  assert.deepEqual(turns, [300, 300])
  await pacer.turn()
  assert.equal(clock.now(), 300, 'afterwards nobody waits')
})
