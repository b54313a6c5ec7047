import assert from 'node:assert/strict'
import test from 'node:test'
import { z } from 'zod'
import { refusalOf } from './refusal.ts'

const schema = z.strictObject({
  count: z.int().min(2).max(9).default(4),
  mode: z.enum(['one', 'two']).default('one'),
  list: z.array(z.strictObject({ path: z.string().min(1) })).default([]),
})

function said(input: unknown): string {
  const { error } = schema.safeParse(input)
  return refusalOf(error!, input, 'settings').message
}

test('what a schema refuses is one sentence: the place at any depth, what was expected, what came', () => {
  assert.equal(said({ count: 1 }), 'settings: count: expected number to be >=2, got 1')
  assert.equal(said({ count: 10 }), 'settings: count: expected number to be <=9, got 10')
  assert.equal(said({ count: 'x' }), 'settings: count: expected number, got x')
  assert.equal(said({ count: 2.5 }), 'settings: count: expected int, got 2.5')
  assert.equal(said({ mode: 'three' }), 'settings: mode: expected one of "one"|"two", got three')
  assert.match(said({ list: [{ path: 'a' }, { path: 7 }] }), /^settings: list\.1\.path: expected string, got 7$/)
  assert.match(said({ list: 'a' }), /^settings: list: expected array, got a$/)
  assert.match(said({ other: 1 }), /^settings: settings: expected known keys, not "other", got /)
  assert.match(said(null), /^settings: settings: expected object, got nothing$/)
})
