import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import fc from 'fast-check'
import { Mismatch } from '../core/index.ts'
import { openSentencePiece, type SentencePiece } from './sentencepiece.ts'
import { StopMatcher } from './stop-matcher.ts'
import { loadTokenizer } from './tokenizer.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden/sentencepiece-tiny')
const bytesOf = (name: string) => readFileSync(join(golden, name, 'tokenizer.model'))
const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-spm-'))
after(() => rmSync(scratch, { recursive: true }))

// A hand-written model: the wire format, field by field.
const varint = (n: number): number[] => (n < 128 ? [n] : [(n & 127) | 128, ...varint(Math.floor(n / 128))])
const field = (number: number, bytes: Iterable<number>) => {
  const data = [...bytes]
  return [...varint(number * 8 + 2), ...varint(data.length), ...data]
}
const whole = (number: number, value: number) => [...varint(number * 8), ...varint(value)]
const piece = (text: string, score = 0, type = 1) => {
  const float = new Uint8Array(Float32Array.of(score).buffer)
  return field(1, [...field(1, Buffer.from(text)), 2 * 8 + 5, ...float, ...whole(3, type)])
}
const unknown = piece('<unk>', 0, 2)
const bpe = field(2, whole(3, 2))
const plain = field(3, [...whole(3, 0), ...whole(4, 0)])
const open = (...parts: number[][]) => openSentencePiece(Uint8Array.from(parts.flat()), 'hand')

describe('a hand-written model', () => {
  test('the pair with the highest score merges first, the left one on ties', () => {
    const sp = open(unknown, piece('a'), piece('b'), piece('ab', -2), piece('ba', -1), piece('aa', -1), bpe, plain)
    assert.deepEqual(pieces(sp, 'aba'), ['a', 'ba'])
    assert.deepEqual(pieces(sp, 'aaa'), ['aa', 'a'])
    assert.deepEqual(pieces(sp, 'aab'), ['aa', 'b'])
  })

  test('an unused piece is merged and split again', () => {
    const sp = open(unknown, piece('a'), piece('b'), piece('ab', -1, 5), piece('abab', -2), bpe, plain)
    assert.deepEqual(pieces(sp, 'ab'), ['a', 'b'])
    assert.deepEqual(pieces(sp, 'abab'), ['abab'])
  })

  test('a user-defined piece is cut out first and merges with nothing', () => {
    const sp = open(unknown, piece('a'), piece('b'), piece('ab', -1), piece('b<', -1), piece('<s', 0, 4), bpe, plain)
    assert.deepEqual(pieces(sp, 'ab<sab'), ['ab', '<s', 'ab'])
  })

  test('unknown neighbours are one unknown id, and what the file says decodes it', () => {
    const trainer = field(2, [...whole(3, 2), ...field(44, Buffer.from('?'))])
    const sp = open(unknown, piece('a'), trainer, plain)
    assert.deepEqual(sp.encodePieces('axya'), [
      { piece: 'a', id: 1 },
      { piece: 'xy', id: 0 },
      { piece: 'a', id: 1 },
    ])
    assert.equal(sp.decode([1, 0, 1]), 'a?a')
  })

  test('a piece that is a NUL character is read and found in a text', () => {
    const sp = open(unknown, piece('a'), piece('\0'), bpe, plain)
    assert.deepEqual([...sp.encode('a\0a')], [1, 2, 1])
    assert.equal(sp.decode([1, 2, 1]), 'a\0a')
  })

  test('absent settings are the defaults of the library: a blank in front, blanks in excess removed', () => {
    const sp = open(unknown, piece('\u2581', -1), piece('a'), piece('\u2581a', -2), bpe)
    assert.deepEqual(pieces(sp, '  a   a '), ['\u2581a', '\u2581a'])
    assert.equal(sp.decode(sp.encode('  a   a ')), 'a a')
  })
})

function pieces(sp: SentencePiece, text: string): string[] {
  return sp.encodePieces(text).map((p) => p.piece)
}

/** BPE written out: look at every pair, merge the best, start again. */
function slowBpe(sp: SentencePiece, text: string): string[] {
  const parts = Array.from(`\u2581${text.replaceAll(' ', '\u2581')}`)
  for (;;) {
    let best = -1
    let score = Number.NEGATIVE_INFINITY
    for (let i = 0; i + 1 < parts.length; i++) {
      const id = sp.model.textIds.get(parts[i]! + parts[i + 1]!)
      if (id === undefined || sp.model.pieces[id]!.score <= score) continue
      score = sp.model.pieces[id]!.score
      best = i
    }
    if (best < 0) return parts
    parts.splice(best, 2, parts[best]! + parts[best + 1]!)
  }
}

test('BPE with a heap gives the pieces of BPE written out', () => {
  const sp = openSentencePiece(bytesOf('bpe-dummy-prefix'))
  const known = sp.model.pieces.filter((p) => p.type === 'normal').map((p) => p.text.replaceAll('\u2581', ' '))
  const text = fc.array(fc.constantFrom(...known), { minLength: 1, maxLength: 12 }).map((parts) => parts.join(''))
  fc.assert(
    fc.property(text, (x) => {
      fc.pre(!/\[SEG\]|<p>|<\/p>|<image>/.test(x))
      assert.deepEqual(pieces(sp, x), slowBpe(sp, x))
    }),
    { numRuns: 200 },
  )
})

/** Words, ten scripts, control characters, ligatures, full-width forms, emoji, the mark of a space. Lines are the tools' unit. */
const unit = fc.constantFrom(
  ...' abcdefgt.,[]<>|123éßøжщ中の가ไกאבعमঅ🎈👩🏽\u0301\u3000\u00a0\u2581\u200d\u0001\u007f\t',
  ...['ﬁ', 'Ａ', '½', '™', 'the ', ' dog', 'segment', '[SEG]', '<p>', '<s>', '\u2581\u2581', '  '],
)

for (const name of ['bpe-dummy-prefix', 'bpe-internlm2', 'unigram']) {
  const library = spawnSync('spm_encode', ['--help']).error === undefined
  const skip = !library && 'no spm_encode: install the package sentencepiece'
  test(`${name}: 20,000 random strings have the ids and the text of the installed library`, { skip }, () => {
    const texts = fc.sample(fc.string({ unit, maxLength: 40 }), { numRuns: 20_000, seed: 7 })
    const model = join(golden, name, 'tokenizer.model')
    const tool = (command: string, args: string[], lines: readonly string[]) =>
      spawnSync(command, [`--model=${model}`, ...args], { input: `${lines.join('\n')}\n`, maxBuffer: 2 ** 28 })
        .stdout.toString()
        .split('\n')
    const ids = tool('spm_encode', ['--output_format=id'], texts)
    const decoded = tool('spm_decode', ['--input_format=id'], ids.slice(0, texts.length))
    const sp = openSentencePiece(bytesOf(name))
    texts.forEach((text, i) => {
      const own = [...sp.encode(text)]
      assert.equal(own.join(' '), ids[i], JSON.stringify(text))
      assert.equal(sp.decode(own), decoded[i], JSON.stringify(text))
    })
  })
}

describe('hostile files', () => {
  const small = Uint8Array.from([unknown, piece('a'), piece('ab', -1), bpe, plain].flat())

  test('a file cut anywhere but between fields is a Mismatch, and so are other bytes', () => {
    let opened = 0
    for (let n = 0; n < small.length; n++) {
      try {
        openSentencePiece(small.subarray(0, n))
        opened++
      } catch (error) {
        assert.ok(error instanceof Mismatch, String(error))
      }
    }
    // whole are: unknown; + a; + ab; + trainer
    assert.equal(opened, 4)
    assert.throws(() => openSentencePiece(Buffer.from('{"model": "json"}')), Mismatch)
  })

  test('whatever bytes are changed in a released kind of file, it opens and encodes or is a Mismatch', () => {
    const change = fc.array(
      fc.tuple(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), fc.integer({ min: 0, max: 255 })),
      {
        minLength: 1,
        maxLength: 8,
      },
    )
    for (const name of ['bpe-internlm2', 'unigram']) {
      const bytes = bytesOf(name)
      fc.assert(
        fc.property(change, (changes) => {
          const copy = Uint8Array.from(bytes)
          for (const [at, value] of changes) copy[Math.floor(at * copy.length)] = value
          try {
            const sp = openSentencePiece(copy)
            sp.decode(sp.encode('The dog, [SEG] 中 \u00a0'))
          } catch (error) {
            assert.ok(error instanceof Mismatch, String(error))
          }
        }),
        { numRuns: 60 },
      )
    }
  })

  for (const [what, parts, message] of [
    ['an endless varint', [Array(11).fill(0xff)], /varint/],
    ['a length beyond the end', [[0x0a, 0xff, 0xff, 0xff, 0x7f]], /to the end of the message/],
    ['a group', [[0x0b]], /wire type/],
    ['two equal pieces', [unknown, piece('a'), piece('a'), bpe], /pieces\[2\]: expected other than pieces\[1\]/],
    ['an empty piece', [unknown, piece('')], /a piece with text/],
    ['no unknown piece', [piece('a')], /one unknown piece/],
    ['two unknown pieces', [unknown, piece('x', 0, 2)], /a second unknown piece/],
    ['a score that is not a number', [unknown, piece('a', Number.NaN)], /finite/],
    ['a type that is none', [unknown, piece('a', 0, 9)], /a type from 1 to 6/],
    ['a piece that is not UTF-8', [field(1, field(1, [0xff, 0xfe]))], /UTF-8/],
    ['a model of words', [unknown, field(2, whole(3, 3))], /unigram or bpe, got word/],
    ['byte fallback without bytes', [unknown, field(2, whole(35, 1))], /256 byte pieces/],
    ['a byte piece without fallback', [unknown, piece('<0x41>', 0, 6)], /no byte pieces/],
    ['a byte piece of another form', [unknown, piece('<0xZZ>', 0, 6)], /a byte piece such as/],
    ['a table larger than its blob', [unknown, field(3, field(2, [255, 0, 0, 0, 1, 2]))], /precompiled_charsmap/],
  ] as const) {
    test(`${what} is a Mismatch`, () => {
      assert.throws(
        () => open(...(parts as unknown as number[][])),
        (error: Error) => error instanceof Mismatch && message.test(error.message),
      )
    })
  }

  test('a table that points outside itself is a Mismatch when it is used', () => {
    const trie = [4, 0, 0, 0, 0xff, 0xff, 0xff, 0x3f, 0x61, 0]
    const sp = open(unknown, piece('a'), bpe, field(3, field(2, trie)))
    assert.throws(() => sp.encode('a'), Mismatch)
  })

  test('a text of 50,000 letters and pieces of every length end soon', () => {
    const parts = Array.from({ length: 200 }, (_, i) => piece('a'.repeat(i + 1), -i))
    for (const kind of [1, 2]) {
      const sp = open(unknown, ...parts, field(2, whole(3, kind)), plain)
      assert.equal(sp.decode(sp.encode('a'.repeat(50_000))).length, 50_000)
    }
  })
})

describe('loadTokenizer on a folder with tokenizer.model', () => {
  const dir = join(golden, 'bpe-internlm2')
  const tokenizer = loadTokenizer(dir)

  test('ids are found by name: added tokens, pieces, and names that take over a piece', () => {
    assert.equal(tokenizer.vocabSize, 616)
    assert.equal(tokenizer.requireId('[SEG]'), 609)
    assert.equal(tokenizer.idOf('<|im_end|>'), 11)
    assert.equal(tokenizer.idOf('<0x0A>'), 23)
    assert.equal(tokenizer.tokenText(11), '<|im_end|>')
    assert.deepEqual([tokenizer.bosId, tokenizer.eosId, tokenizer.padId], [1, 2, 2])
    assert.throws(() => tokenizer.requireId('<nothing>'), Mismatch)
  })

  test('bos comes in front of a prompt and not of an answer', () => {
    assert.equal(tokenizer.encode('dog')[0], 1)
    assert.deepEqual([...tokenizer.encode('dog', { addSpecial: false })], [...tokenizer.encode('dog')].slice(1))
  })

  test('the template stops at its stop word, which is one id here', () => {
    const matcher = new StopMatcher(tokenizer, { stopIds: tokenizer.eosIds, stopStrings: ['<|im_end|>'] })
    const ids = tokenizer.encode('The dog.<|im_end|>', { addSpecial: false })
    assert.deepEqual(
      Array.from(ids, (id) => matcher.feed(id)),
      [...Array(ids.length - 1).fill('go'), 'stop'],
    )
  })

  test('words of others are words: an added token, or a piece whose id one took over, is spelled out in them', () => {
    const text = '<|im_start|>a [SEG] [UNUSED_TOKEN_9] <s> b<|im_end|>'
    const start = text.indexOf('>a') + 1
    const ids = [...tokenizer.encode(text, { plain: [[start, text.indexOf('<|im_end|>')]] })]
    assert.deepEqual([ids[0], ids[1], ids.at(-1)], [1, 12, 11])
    const inner = ids.slice(2, -1)
    assert.ok(inner.every((id) => !tokenizer.specialIds.has(id)))
    assert.equal(tokenizer.decode(inner), text.slice(start, text.indexOf('<|im_end|>')))
    const harmless = '<|im_start|>the dog<|im_end|>'
    assert.deepEqual(tokenizer.encode(harmless, { plain: [[12, 19]] }), tokenizer.encode(harmless))
  })

  test('ids of padding rows add nothing', () => {
    assert.equal(tokenizer.decode([425, 9999, 469]), ' dog.')
  })

  test('a bare tokenizer.model opens alone and adds no bos', () => {
    const bare = loadTokenizer(join(golden, 'bpe-dummy-prefix', 'tokenizer.model'))
    assert.equal(bare.decode(bare.encode('the dog')), 'the dog')
    assert.notEqual(bare.encode('the dog')[0], bare.bosId)
  })

  test('tokenizer.json is preferred where a folder has both', () => {
    const both = mkdtempSync(join(scratch, 'both-'))
    cpSync(join(golden, '../sa2va-tiny/tokenizer.json'), join(both, 'tokenizer.json'))
    cpSync(join(dir, 'tokenizer.model'), join(both, 'tokenizer.model'))
    assert.equal(loadTokenizer(both).requireId('[SEG]'), 492)
  })

  test('a special token that no file gives an id is a Mismatch with its name', () => {
    const lost = mkdtempSync(join(scratch, 'lost-'))
    cpSync(join(dir, 'tokenizer.model'), join(lost, 'tokenizer.model'))
    writeFileSync(join(lost, 'tokenizer_config.json'), JSON.stringify({ additional_special_tokens: ['<lost>'] }))
    assert.throws(() => loadTokenizer(lost), /<lost>: expected an id/)
  })
})
