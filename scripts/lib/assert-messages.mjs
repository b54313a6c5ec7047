// Preload for tests: a failing `assert.ok(value)` says what it got. Node would parse the transpiled test file for the words of the call,
// and hangs for minutes where that file is one long line.
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
