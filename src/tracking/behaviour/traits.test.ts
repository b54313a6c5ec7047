import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withinMinute } from '../../../tests/support/in-time.ts'
import { wordsOf } from './traits.ts'

test('words of an answer are in lower case, without special tokens and without punctuation', () => {
  assert.deepEqual(wordsOf('A red Cup,[SEG]<|im_end|> cut <|in_two and|> <| open'), ['a', 'red', 'cup', 'cut', 'open'])
})

test('a million special tokens that do not end are read in one pass', () => {
  assert.equal(withinMinute(() => wordsOf(`${'<|'.repeat(1_000_000)} end`)).length, 1)
})
