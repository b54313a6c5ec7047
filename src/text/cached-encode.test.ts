import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import type { Tokenizer } from './base-tokenizer.ts'
import { encodeRuns } from './cached-encode.ts'
import { loadTokenizer } from './tokenizer.ts'

const tokenizer = loadTokenizer(fileURLToPath(new URL('../../tests/fixtures/golden/sa2va-tiny', import.meta.url)))
const token = '<IMG_CONTEXT>'

/** The tokenizer with the characters it was given. */
function counting(): { tokenizer: Pick<Tokenizer, 'encode' | 'requireId'>; read: () => number } {
  let read = 0
  const encode: Tokenizer['encode'] = (text, options) => {
    read += text.length
    return tokenizer.encode(text, options)
  }
  return { tokenizer: { requireId: (t) => tokenizer.requireId(t), encode }, read: () => read }
}

test('a long run is read as one token, and its ids are those of the whole text', () => {
  const text = `<|user|>\n<img>${token.repeat(1024)}</img>\nregion1<vp>${token.repeat(37)}</vp>.<|end|>`
  const { tokenizer: counted, read } = counting()
  assert.deepEqual(encodeRuns(counted, { text, plain: [] }, token), tokenizer.encode(text))
  assert.ok(read() < 100, `${read()} characters are read`)
})

test('any text, also with the token among the words of others or half of it beside them', () => {
  const piece = fc.constantFrom(token, token.repeat(3), '<img>', ' red', '\n', 'é', '<IMG_', 'CONTEXT>', '[SEG]', '.')
  const pieces = fc.array(piece, { maxLength: 8 }).map((all) => all.join(''))
  fc.assert(
    fc.property(pieces, pieces, pieces, fc.boolean(), (before, words, after, addSpecial) => {
      const text = before + words + after
      const plain: [number, number][] = [[before.length, before.length + words.length]]
      const got = encodeRuns(tokenizer, { text, plain }, token, { addSpecial })
      assert.deepEqual(got, tokenizer.encode(text, { plain, addSpecial }))
    }),
    { numRuns: 300 },
  )
})
