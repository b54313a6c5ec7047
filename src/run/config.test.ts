import assert from 'node:assert/strict'
import test from 'node:test'
import { type RunInput, resolveRun } from './config.ts'

test('counts that mean nothing, or more threads than any machine has, are refused with the range', () => {
  const refused = (input: RunInput, reason: RegExp) => assert.throws(() => resolveRun(input), reason)
  refused({ maxSteps: -2 }, /settings: maxSteps: expected .*>=\s?-1.*got -2/)
  refused({ threads: 5000 }, /settings: threads: expected .*<=\s?1024.*got 5000/)
  refused({ threads: -1 }, /settings: threads: expected .*>=\s?0.*got -1/)
  assert.deepEqual([resolveRun({ maxSteps: -1 }).maxSteps, resolveRun({ threads: 1024 }).threads], [-1, 1024])
})
