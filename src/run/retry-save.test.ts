import assert from 'node:assert/strict'
import test, { type TestContext } from 'node:test'
import { retrySave, saveTimeoutOf } from './retry-save.ts'

const trouble = (code: string) => Object.assign(new Error(code), { code })

/** What the attempts end with, how many there were, after how many seconds, and the warnings. */
async function attempts(t: TestContext, failures: readonly Error[], seconds: number, stopping = () => false) {
  let [now, tries] = [0, 0]
  t.mock.method(performance, 'now', () => now)
  t.mock.method(globalThis, 'setTimeout', (done: () => void, ms: number) => {
    now += ms
    setImmediate(done)
  })
  const warnings: string[] = []
  const save = () => {
    const error = failures[tries++]
    if (error) throw error
  }
  const end = retrySave(save, { seconds, stopping, report: ({ kind, text }) => warnings.push(`${kind} ${text}`) })
  const result = await end.then(
    () => 'saved',
    (error: Error) => error.message,
  )
  t.mock.restoreAll()
  return { result, tries, waited: now / 1000, warnings }
}

test('a disk that is full for a while costs one warning, and the pauses grow', async (t) => {
  const full = new Array(5).fill(trouble('ENOSPC'))
  const { result, tries, waited, warnings } = await attempts(t, full, 300)
  assert.deepEqual([result, tries, waited], ['saved', 6, 1 + 2 + 4 + 8 + 15])
  assert.equal(warnings.length, 1)
  assert.match(warnings[0]!, /^checkpoint-late ENOSPC.*tried again for 300 s/)
})

test('a disk that stays full ends the run when the time is over, and at once without a time limit', async (t) => {
  const full = new Array(99).fill(trouble('ENOSPC'))
  assert.deepEqual(await attempts(t, full, 0), { result: 'ENOSPC', tries: 1, waited: 0, warnings: [] })
  const { result, waited } = await attempts(t, full, 20)
  assert.deepEqual([result, waited], ['ENOSPC', 20])
})

test('an error that waiting does not fix is not waited for: a limit on files, an error of another kind, a run that is to end', async (t) => {
  for (const code of ['EFBIG', 'ERR_MISMATCH']) {
    const { result, tries } = await attempts(t, [trouble(code)], 300)
    assert.deepEqual([result, tries], [code, 1])
  }
  const { result, tries } = await attempts(t, [trouble('ENOSPC')], 300, () => true)
  assert.deepEqual([result, tries], ['ENOSPC', 1])
})

test('several processes wait no longer than half of what the others wait for them', () => {
  const times = { saveTimeout: 300, distTimeout: 400 } as Parameters<typeof saveTimeoutOf>[0]
  assert.deepEqual([saveTimeoutOf(times, 1), saveTimeoutOf(times, 2)], [300, 200])
  assert.equal(saveTimeoutOf({ ...times, distTimeout: 1000 }, 2), 300)
})
