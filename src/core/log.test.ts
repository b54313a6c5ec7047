import assert from 'node:assert/strict'
import { test } from 'node:test'
import { messageLine, printable } from './log.ts'

test('text from outside can neither move the cursor nor look like another message', () => {
  assert.equal(printable('a\u001b]0;title\u0007b\u001b[2J\u009b1m'), 'a\\x1b]0;title\\x07b\\x1b[2J\\x9b1m')
  assert.equal(printable('a \u202egnp.exe\u2069'), 'a \\u202egnp.exe\\u2069')
  assert.equal(printable('one\nerror: two\r\n'), 'one\n  error: two\\x0d\n')
  assert.equal(printable('plain é 日本\ttab'), 'plain é 日本\ttab')
})

test('on a terminal a message takes the place of a status line, elsewhere it is a plain line', () => {
  const wiped = '\r\u001b[K'
  assert.equal(messageLine('warn', 'late', true), `${wiped}warn: late\n`)
  assert.equal(messageLine('info', 'one\ntwo', true), `${wiped}one\n  two\n`)
  assert.equal(messageLine('warn', 'late', false), 'warn: late\n')
})
