import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Mismatch } from '../core/index.ts'
import { whyUnsafe, withinTime } from './patterns.ts'
import { loadTokenizer } from './tokenizer.ts'
import { qwen2Pattern, qwen2TokenizerJson } from './tokenizer-files.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-patterns-'))
after(() => rmSync(folder, { recursive: true, force: true }))

function tokenizerWith(change: (json: ReturnType<typeof qwen2TokenizerJson>) => void): string {
  const vocab = Object.fromEntries([...'abcdefgh'].map((c, i) => [c, i]))
  const json = qwen2TokenizerJson(vocab, [], [])
  change(json)
  const path = join(folder, 'tokenizer.json')
  writeFileSync(path, JSON.stringify(json))
  return path
}

function withPattern(pattern: string): string {
  return tokenizerWith((json) => {
    const list = (json.pre_tokenizer as { pretokenizers: { pattern?: unknown }[] }).pretokenizers
    list[0]!.pattern = { Regex: pattern }
  })
}

test('patterns of released tokenizers pass', () => {
  const released = [
    qwen2Pattern,
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", // GPT-2
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{M}]*[\\p{Ll}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}", // GPT-4o
    '[(*+){2}]+|\\(\\+\\)*', // quantifiers as plain characters
  ]
  for (const pattern of released) assert.equal(whyUnsafe(pattern), null, pattern)
})

test('repeated repetitions and references are refused with the field', () => {
  const hostile = [
    '(a+)+$',
    '(?:a*b?)*c',
    '((ab)*){2,}',
    '(?:(?:x{1,99})y)+',
    '(a)\\1+',
    '(?<n>a)\\k<n>',
    '([a-z]+|b){5,}',
  ]
  for (const pattern of hostile) {
    assert.ok(whyUnsafe(pattern), pattern)
    const expected = /tokenizer\.json: pre_tokenizer\.pretokenizers\.0\.pattern\.Regex: expected a pattern whose cost/
    assert.throws(() => loadTokenizer(withPattern(pattern)), expected)
  }
})

test('a pattern that is slow on a long text is broken off with a Mismatch', { timeout: 600_000 }, () => {
  const text = 'a'.repeat(5000)
  assert.throws(
    () => withinTime(200, 'tokenizer.json', () => /(?:a|a)*b/.test(text)),
    (error) => error instanceof Mismatch && /within 0\.2 s/.test(error.message),
  )
  assert.equal(
    withinTime(100_000, 'x', () => 42),
    42,
  )
  assert.throws(
    () =>
      withinTime(100_000, 'x', () => {
        throw new RangeError('mine')
      }),
    /mine/,
  )
})

test('ids that the file cannot hold are refused at once', () => {
  for (const id of [1e9, -1, 0.5, '3', null]) {
    const path = tokenizerWith((json) => {
      ;(json.model.vocab as Record<string, unknown>).a = id
    })
    const started = Date.now()
    assert.throws(() => loadTokenizer(path), /tokenizer\.json: token "a": expected text with an id from 0 to 200007/)
    assert.ok(Date.now() - started < 60_000, 'a table of that many ids takes minutes')
  }
  const added = tokenizerWith((json) => {
    json.added_tokens = [{ id: 1e9, content: '<x>' }] as never
  })
  assert.throws(() => loadTokenizer(added), /token "<x>": expected/)
  assert.equal(loadTokenizer(tokenizerWith(() => undefined)).vocabSize, 8)
})

test('parts of another type are refused by name', () => {
  const wrong: [unknown, RegExp][] = [
    [[], /expected a JSON object, got a list/],
    [{ model: 5 }, /model\.vocab/],
    [{ model: { vocab: {} }, added_tokens: 5 }, /added_tokens: expected a list/],
    [{ model: { vocab: {} }, added_tokens: [null] }, /added_tokens\.0/],
    [{ model: { vocab: {} }, added_tokens: [{ id: 1, content: '' }] }, /added_tokens\.0/],
  ]
  for (const [json, message] of wrong) {
    const path = join(folder, 'tokenizer.json')
    writeFileSync(path, JSON.stringify(json))
    assert.throws(
      () => loadTokenizer(path),
      (error) => error instanceof Mismatch && message.test(error.message),
    )
  }
})
