import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { Mismatch } from '../core/index.ts'
import { StopMatcher } from './stop-matcher.ts'
import { loadTokenizer } from './tokenizer.ts'

const tokenizer = loadTokenizer(fileURLToPath(new URL('../../tests/fixtures/golden/sa2va-tiny', import.meta.url)))
const rule = { stopIds: tokenizer.eosIds, stopStrings: ['<|end|>'] }

/** Index of the token at which the matcher stops, or -1. */
function stopIndex(ids: ArrayLike<number>, matcher = new StopMatcher(tokenizer, rule)): number {
  return Array.from(ids).findIndex((id) => matcher.feed(id) === 'stop')
}

/** The reference's test, done on the whole text after every token. */
function slowStopIndex(ids: readonly number[], stops: readonly string[]): number {
  return ids.findIndex((_, i) => {
    const text = tokenizer.decode(ids.slice(0, i + 1)).replace(/[\r\n]/g, '')
    return stops.some((stop) => text.endsWith(stop))
  })
}

describe('StopMatcher', () => {
  test('a marker in plain text, split over five tokens, stops at its last token', () => {
    const ids = tokenizer.encode('red circle<|end|>\n<|user|>')
    assert.equal(tokenizer.decode(ids.slice(0, stopIndex(ids) + 1)), 'red circle<|end|>')
  })

  test('one marker split in every possible way stops at its last byte', () => {
    const byte = (c: string) => tokenizer.requireId(c)
    assert.equal(stopIndex([...'<|end|>'].map(byte)), 6)
    assert.equal(stopIndex([byte('<'), byte('|'), tokenizer.requireId('end'), byte('|'), byte('>')]), 4)
  })

  test('line breaks inside and after the marker do not hide it', () => {
    assert.notEqual(stopIndex(tokenizer.encode('a<|e\nnd|\r\n>')), -1)
    const glued = { tokenBytes: (id: number) => new TextEncoder().encode(['<|end|', '>\n'][id]) }
    assert.equal(stopIndex([0, 1], new StopMatcher(glued, rule)), 1)
  })

  test('a marker with text after it in the same token does not stop, as in the reference', () => {
    const glued = { tokenBytes: (id: number) => new TextEncoder().encode(['<|end|', '>a'][id]) }
    assert.equal(stopIndex([0, 1], new StopMatcher(glued, rule)), -1)
  })

  test('every id of the EOS set stops, alone and without stop strings', () => {
    const stopIds = new Set([480, 482])
    for (const id of stopIds) {
      assert.equal(stopIndex([32, id, 32], new StopMatcher(tokenizer, { stopIds, stopStrings: [] })), 1)
    }
  })

  test('special tokens as stop strings stop too', () => {
    const qwen = { stopIds: new Set<number>(), stopStrings: ['<|im_end|>', '<|endoftext|>'] }
    assert.equal(stopIndex([32, 482], new StopMatcher(tokenizer, qwen)), 1)
    assert.equal(stopIndex([32, 480], new StopMatcher(tokenizer, qwen)), 1)
  })

  test('rows stop independently and stay stopped', () => {
    const rows = ['a<|end|>', 'a red circle', '<|end|>'].map((text) => [...tokenizer.encode(text)])
    const matchers = rows.map(() => new StopMatcher(tokenizer, rule))
    const longest = Math.max(...rows.map((row) => row.length))
    for (let t = 0; t < longest; t++) rows.forEach((row, r) => void (t < row.length && matchers[r]!.feed(row[t]!)))
    assert.deepEqual(
      matchers.map((m) => m.stopped),
      [true, false, true],
    )
    assert.equal(matchers[0]!.feed(32), 'stop')
  })

  test('a stop string that is only line breaks is a Mismatch', () => {
    assert.throws(() => new StopMatcher(tokenizer, { stopIds: new Set(), stopStrings: ['\n'] }), Mismatch)
  })

  test('for any ids it agrees with decoding the whole text after every token', () => {
    const stops = ['<|end|>', 'é中']
    const pieces = fc.constantFrom('<|', 'end', '|>', '<|end|>', '\n', '>', 'é', '中', ' red', '\r')
    const ids = fc.array(
      fc.oneof(
        pieces.map((p) => [...tokenizer.encode(p)]),
        fc.integer({ min: 0, max: 479 }).map((i) => [i]),
      ),
    )
    fc.assert(
      fc.property(ids, (parts) => {
        const row = parts.flat()
        const matcher = new StopMatcher(tokenizer, { stopIds: new Set(), stopStrings: stops })
        return stopIndex(row, matcher) === slowStopIndex(row, stops)
      }),
      { numRuns: 200 },
    )
  })
})
