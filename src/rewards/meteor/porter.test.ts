import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { porterStem } from './porter.ts'

const golden = fileURLToPath(new URL('../../../tests/fixtures/golden/porter.jsonl', import.meta.url))

test('porterStem equals NLTK on all 5,000 reference words', () => {
  const lines = readFileSync(golden, 'utf8').trim().split('\n')
  assert.equal(lines.length, 5000)
  for (const line of lines) {
    const { word, stem } = JSON.parse(line)
    assert.equal(porterStem(word), stem, JSON.stringify(word))
  }
})

test('irregular words are found as they are given, in lower case only', () => {
  assert.deepEqual(['skies', 'Skies', 'dying', 'news', 'innings'].map(porterStem), [
    'sky',
    'ski',
    'die',
    'news',
    'inning',
  ])
})

test('an emoji is one letter', () => {
  assert.equal(porterStem('\u{1f436}s'), '\u{1f436}s')
  assert.equal(porterStem('\u{1f436}\u{1f436}s'), '\u{1f436}\u{1f436}')
  assert.equal(porterStem('a\u{1f436}\u{1f436}ing'), 'a\u{1f436}')
})

test('the marks of the rule notation act as in NLTK', () => {
  assert.equal(porterStem('abc*ding'), 'abcd')
})

test('the additions to the published rules hold', () => {
  const words = ['dies', 'flies', 'died', 'enjoy', 'happy', 'by', 'analogies', 'geology', 'eating', 'owing']
  const stems = ['die', 'fli', 'die', 'enjoy', 'happi', 'by', 'analog', 'geolog', 'eat', 'owe']
  assert.deepEqual(words.map(porterStem), stems)
})

test('short words and the empty word come back in lower case', () => {
  assert.deepEqual(['', 'A', 'IS', 'as'].map(porterStem), ['', 'a', 'is', 'as'])
})
