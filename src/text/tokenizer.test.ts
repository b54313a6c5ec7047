import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { readInt64 } from '../../tests/support/golden-text.ts'
import { Mismatch } from '../core/index.ts'
import { verifyTokenizer } from '../verify/tokens.ts'
import { baseVocabulary, byteAlphabet } from './byte-level.ts'
import { tokenDecoder } from './token-decoder.ts'
import { loadTokenizer } from './tokenizer.ts'
import { qwen2TokenizerJson } from './tokenizer-files.ts'

const sa2va = fileURLToPath(new URL('../../tests/fixtures/golden/sa2va-tiny', import.meta.url))
const qwenVl = fileURLToPath(new URL('../../tests/fixtures/golden/qwen2_5_vl-tiny', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-text-'))
after(() => rmSync(scratch, { recursive: true }))

function folder(name: string, files: Record<string, unknown>): string {
  const path = mkdtempSync(join(scratch, `${name}-`))
  for (const [file, value] of Object.entries(files)) {
    writeFileSync(join(path, file), typeof value === 'string' ? value : JSON.stringify(value))
  }
  return path
}

describe('loadTokenizer on tokenizer.json', () => {
  const tokenizer = loadTokenizer(sa2va)

  test('every golden case has the ids and both decodings of the reference', () => {
    const rows = verifyTokenizer(sa2va)
    assert.equal(rows.length, 11)
    assert.deepEqual(
      rows.filter((row) => !row.pass),
      [],
    )
  })

  test('verify reports a wrong id and names it', () => {
    const dir = mkdtempSync(join(scratch, 'verify-'))
    cpSync(join(sa2va, 'tokenizer.json'), join(dir, 'tokenizer.json'))
    const wrong = { text: 'red', ids: [1], decoded: '"', decoded_skip: '"' }
    writeFileSync(join(dir, 'golden.json'), JSON.stringify({ tokenizer_cases: [wrong] }))
    const [row] = verifyTokenizer(dir)
    assert.equal(row?.pass, false)
    assert.match(row?.detail ?? '', /ids: expected \[1\]/)
  })

  test('greedy ids with broken UTF-8 decode to the reference text', () => {
    const golden = JSON.parse(readFileSync(join(sa2va, 'golden.json'), 'utf8')) as { cap_text: string }
    const ids = readInt64(join(sa2va, 'golden.safetensors'), 'cap.greedy_ids')
    assert.equal(tokenizer.decode(ids), golden.cap_text)
  })

  test('the Qwen2.5-VL prompt has the golden ids, its eos comes from config.json', () => {
    const golden = JSON.parse(readFileSync(join(qwenVl, 'golden.json'), 'utf8')) as { text: string }
    const qwen = loadTokenizer(qwenVl)
    assert.deepEqual([...qwen.encode(golden.text)], readInt64(join(qwenVl, 'golden.safetensors'), 'input_ids'))
    assert.deepEqual([...qwen.eosIds], [482])
    assert.equal(qwen.vocabSize, 506)
  })

  test('ids are found by name and a missing name is a Mismatch', () => {
    assert.equal(tokenizer.vocabSize, 497)
    assert.equal(tokenizer.requireId('[SEG]'), 492)
    assert.equal(tokenizer.idOf('<nothing>'), undefined)
    assert.throws(() => tokenizer.requireId('<nothing>'), Mismatch)
    assert.equal(tokenizer.tokenText(354), ' red')
    assert.ok(tokenizer.specialIds.has(492) && tokenizer.specialIds.size === 17)
  })

  test('no ids decode to the empty text and ids above the vocabulary add nothing', () => {
    assert.equal(tokenizer.decode([]), '')
    assert.equal(tokenizer.decode([354, 100000, 401]), ' red circle')
  })

  test('a space before punctuation and a byte order mark survive', () => {
    for (const text of ['red .', "it 's , not n't", '\ufeffred']) {
      assert.equal(tokenizer.decode(tokenizer.encode(text)), text)
    }
  })

  test('decode(encode(x)) is x for any well-formed text, added tokens included', () => {
    const word = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('[SEG]', '<vp>', '<|end|>', ' the', '\n', '\r\n', '  '),
    )
    const text = fc.array(word, { maxLength: 8 }).map((words) => words.join(''))
    fc.assert(
      fc.property(text, (x) => tokenizer.decode(tokenizer.encode(x)) === x),
      { numRuns: 100 },
    )
  })
})

describe('loadTokenizer on vocab.json, merges.txt and added_tokens.json', () => {
  // Every token of the spec's golden encodings at its real Qwen2 id, with merges that build it from the left.
  // biome-ignore format: a table of ids
  const words: Record<string, number> = {
    user: 872, end: 408, assistant: 77091, What: 3838, Ġis: 374, Ġit: 432, '?<': 75414, '.<': 15757, '>Ċ': 397,
    Sure: 39814, It: 2132, Ġman: 883, Ġin: 304, Ġa: 264, Ġred: 2518, Ġshirt: 15478, There: 3862, Ġare: 525,
    Ġpart: 949, Ġregions: 13604, Ġthe: 279, Ġpicture: 6802, Ġregion: 5537, '.Ċ': 624, '.ĊĊ': 382, Please: 5501,
    Ġgive: 2968, Ġme: 752, Ġshort: 2805, Ġdescription: 4008, Ġof: 315, Ġmarked: 12864, Ġby: 553, Hi: 13048,
  }
  // biome-ignore format: a table of ids
  const added: Record<string, number> = {
    '<|endoftext|>': 151643, '<|im_start|>': 151644, '<|im_end|>': 151645, '<img>': 151665, '</img>': 151666,
    '<IMG_CONTEXT>': 151667, '[SEG]': 151674, '<p>': 151675, '</p>': 151676, '<vp>': 151677, '</vp>': 151678,
  }

  function qwenFolder(extra: Record<string, unknown> = {}): string {
    const vocab: Record<string, number> = Object.fromEntries(baseVocabulary().map((token, id) => [token, id]))
    const merges: string[] = []
    let spare = 20000
    // Please first: the `a s` of assistant would else cut through it.
    for (const word of Object.keys(words).sort((a, b) => Number(b === 'Please') - Number(a === 'Please'))) {
      for (let n = 2; n <= word.length; n++) {
        const merge = `${word.slice(0, n - 1)} ${word[n - 1]}`
        if (!merges.includes(merge)) merges.push(merge)
        vocab[word.slice(0, n)] ??= words[word.slice(0, n)] ?? spare++
      }
    }
    const text = `#version: 0.2\n${merges.join('\n')}\n`
    return folder('qwen', { 'vocab.json': vocab, 'merges.txt': text, 'added_tokens.json': added, ...extra })
  }

  const golden: [string, number[]][] = [
    ['<|user|>\n', [27, 91, 872, 91, 397]],
    ['<|end|>', [27, 91, 408, 91, 29]],
    ['\n', [198]],
    ['What is it?<|end|>\n<|assistant|>\n', [3838, 374, 432, 75414, 91, 408, 91, 397, 27, 91, 77091, 91, 397]],
    ['[SEG].<|end|>', [151674, 15757, 91, 408, 91, 29]],
    ['Sure, it is [SEG].<|end|>', [39814, 11, 432, 374, 220, 151674, 15757, 91, 408, 91, 29]],
    ['It is [SEG].<|end|>', [2132, 374, 220, 151674, 15757, 91, 408, 91, 29]],
    ['a man in a red shirt<|end|>', [64, 883, 304, 264, 2518, 15478, 27, 91, 408, 91, 29]],
    ['a man in a red shirt.<|end|>', [64, 883, 304, 264, 2518, 15478, 15757, 91, 408, 91, 29]],
    [
      'There are 2 part regions in the picture: region1<vp><IMG_CONTEXT></vp>, region2<vp></vp>.\n',
      [
        3862, 525, 220, 17, 949, 13604, 304, 279, 6802, 25, 5537, 16, 151677, 151667, 151678, 11, 5537, 17, 151677,
        151678, 624,
      ],
    ],
    ['</vp>.\n\nPlease', [151678, 382, 5501]],
    [
      '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
      [151644, 872, 198, 13048, 151645, 198, 151644, 77091, 198],
    ],
  ]
  const tokenizer = loadTokenizer(qwenFolder())

  for (const [text, ids] of golden) {
    test(`${JSON.stringify(text)} has the ids of Qwen2`, () => {
      assert.deepEqual([...tokenizer.encode(text)], ids)
      assert.equal(tokenizer.decode(ids), text)
    })
  }

  test('a text is NFC-normalised first', () => {
    assert.deepEqual(tokenizer.encode('e\u0301'), tokenizer.encode('\u00e9'))
  })

  test('length, eos and pad follow the added tokens', () => {
    assert.equal(tokenizer.vocabSize, 151679)
    assert.deepEqual([...tokenizer.eosIds], [151645])
    assert.equal(tokenizer.padId, 151643)
    assert.equal(tokenizer.bosId, undefined)
  })

  test('eos is the union of tokenizer_config.json and the list of generation_config.json', () => {
    const loaded = loadTokenizer(
      qwenFolder({
        'tokenizer_config.json': { eos_token: '<|im_end|>', pad_token: { content: '<|endoftext|>' }, bos_token: null },
        'generation_config.json': { eos_token_id: [151645, 151643] },
        'config.json': { eos_token_id: 7 },
      }),
    )
    assert.deepEqual([...loaded.eosIds], [151645, 151643])
    assert.equal(loaded.bosId, undefined)
  })

  test('an eos outside the vocabulary is a Mismatch', () => {
    assert.throws(() => loadTokenizer(qwenFolder({ 'generation_config.json': { eos_token_id: 999999 } })), Mismatch)
  })

  test('tokens that only tokenizer_config.json marks as not special stay when specials are skipped', () => {
    const decoder = { '151657': { content: '<tool_call>', special: false } }
    const loaded = loadTokenizer(qwenFolder({ 'tokenizer_config.json': { added_tokens_decoder: decoder } }))
    assert.equal(loaded.decode([151657, 151645], { skipSpecial: true }), '<tool_call>')
  })
})

describe('bad folders', () => {
  test('a folder without tokenizer, one with tokenizer.model only, and a missing one are told apart', () => {
    assert.throws(() => loadTokenizer(folder('empty', {})), /expected tokenizer.json.*got none of them/)
    assert.throws(() => loadTokenizer(folder('spm', { 'tokenizer.model': 'x' })), /tokenizer.model: byte 1/)
    assert.throws(() => loadTokenizer(join(scratch, 'nowhere')), /nothing there/)
  })

  test('broken JSON, a bad merge line and a foreign added_tokens.json name the file', () => {
    assert.throws(
      () => loadTokenizer(folder('json', { 'tokenizer.json': '{' })),
      /tokenizer.json: expected a file of JSON/,
    )
    assert.throws(
      () => loadTokenizer(folder('merges', { 'vocab.json': {}, 'merges.txt': '#version\na b c\n' })),
      /merges.txt: line 2/,
    )
    const dir = folder('foreign', { 'added_tokens.json': { '<other>': 492 } })
    cpSync(join(sa2va, 'tokenizer.json'), join(dir, 'tokenizer.json'))
    assert.throws(() => loadTokenizer(dir), /added token 492: expected \[SEG\]/)
  })
})

test('the shipped files have every field that the tokenizers library requires of a byte-level block', () => {
  const wanted = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false }
  for (const name of ['miniature', 'miniature-full', 'points-miniature/policy']) {
    const path = fileURLToPath(new URL(`../../assets/${name}/tokenizer.json`, import.meta.url))
    const file = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>
    assert.deepEqual([file['decoder'], file['post_processor']], [wanted, wanted], name)
  }
  const { decoder } = qwen2TokenizerJson({}, [], [])
  assert.deepEqual(decoder, wanted)
})

describe('byte alphabet and byte fallback', () => {
  test('the alphabet has 256 characters, newline is Ċ = 198 and space Ġ = 220', () => {
    assert.equal(new Set(byteAlphabet).size, 256)
    const base = baseVocabulary()
    assert.deepEqual([base[198], base[220], base[0], base[64]], ['Ċ', 'Ġ', '!', 'a'])
  })

  test('a run of fallback bytes that is not UTF-8 gives one U+FFFD per byte, a valid run its text', () => {
    const decoder = tokenDecoder(
      {
        type: 'Sequence',
        decoders: [
          { type: 'Replace', pattern: { String: '▁' } },
          { type: 'ByteFallback' },
          { type: 'Fuse' },
          { type: 'Strip', content: ' ', start: 1 },
        ],
      },
      'test',
    )
    const join = (...tokens: string[]) => decoder.join(tokens.map((token) => ({ token, isAdded: false })))
    assert.equal(join('▁red', '▁', '<0xE4>', '<0xB8>', '<0xAD>', 'x'), 'red 中x')
    assert.equal(join('a', '<0xE4>', '<0xB8>', 'b'), 'a\ufffd\ufffdb')
    assert.equal(join('▁▁two'), ' two')
  })

  test('an unknown decoder is a Mismatch', () => {
    assert.throws(() => tokenDecoder({ type: 'WordPiece' }, 'test'), Mismatch)
  })
})

test('a long text that is asked for again has the same ids, which belong to the caller, with and without special tokens', () => {
  const folder = fileURLToPath(new URL('../../tests/fixtures/golden/sa2va-tiny', import.meta.url))
  const [tokenizer, fresh] = [loadTokenizer(folder), () => loadTokenizer(folder)]
  for (let i = 0; i < 300; i++) {
    const text = `${i} ${'a red circle and '.repeat(20)}`
    const ids = tokenizer.encode(text)
    if (i % 60 === 0) assert.deepEqual(ids, fresh().encode(text))
    ids.fill(0)
    const bare = { addSpecial: false }
    if (i % 60 === 0) assert.deepEqual(tokenizer.encode(text, bare), fresh().encode(text, bare))
    assert.notDeepEqual(tokenizer.encode(text), ids)
  }
})
