import assert from 'node:assert/strict'
import test from 'node:test'
import './assert-messages.mjs'

test('assert.ok without a message says what it got; a message or an error of the caller stays', () => {
  assert.throws(() => assert.ok(0), { name: 'AssertionError', message: 'expected something true, got 0' })
  assert.throws(() => assert.ok(1 > 2, 'one is smaller'), { name: 'AssertionError', message: 'one is smaller' })
  assert.throws(() => assert.ok(null, new TypeError('mine')), { name: 'TypeError', message: 'mine' })
  assert.ok('x')
})
