import assert from 'node:assert/strict'
import { test } from 'node:test'
import { printable } from './log.ts'

test('text from outside can neither move the cursor nor look like a message of its own', () => {
  assert.equal(printable('a\u001b]0;title\u0007b\u001b[2J\u009b1m'), 'a\\x1b]0;title\\x07b\\x1b[2J\\x9b1m')
  assert.equal(printable('one\nerror: two\r\n'), 'one\n  error: two\\x0d\n')
  assert.equal(printable('plain é 日本\ttab'), 'plain é 日本\ttab')
})
