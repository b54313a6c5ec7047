// Preload for tests: a failing `assert.ok(value)` shows the value. Node itself would parse the transpiled test file for the message,
// which takes minutes if the file is one long line.
import assert from 'node:assert/strict'
import { inspect } from 'node:util'

const ok = (value, message) => {
  if (value) return
  if (message instanceof Error) throw message
  throw new assert.AssertionError({
    message: message ?? `expected something true, got ${inspect(value, { depth: 1, breakLength: 80 })}`,
    actual: value,
    expected: true,
    operator: 'ok',
    stackStartFn: ok,
  })
}
assert.ok = ok
