import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { stretches } from './plain-text.ts'
import { loadTokenizer } from './tokenizer.ts'
import { addedToken } from './tokenizer-files.ts'

const golden = fileURLToPath(new URL('../../tests/fixtures/golden/sa2va-tiny/tokenizer.json', import.meta.url))
const tokens = ['<a>', '</a>', '[SEG]'].map((content, id) => addedToken(id, content))

test('a text is cut at the real added tokens around a range that spells one, and only there', () => {
  const text = 'x<a>y [SEG] z</a>w'
  const range = [text.indexOf('[SEG]'), text.indexOf('[SEG]') + 5] as const
  assert.deepEqual(stretches(text, [range], tokens), [
    { text: 'x<a>', plain: false },
    { text: 'y [SEG] z', plain: true },
    { text: '</a>w', plain: false },
  ])
  assert.deepEqual(stretches(text, [[4, 6]], tokens), [{ text, plain: false }])
  assert.deepEqual(stretches(text, [], tokens), [{ text, plain: false }])
})

test('a token that begins in the words and ends after them, or covers two ranges, is not read either', () => {
  assert.deepEqual(stretches('[SEG]', [[0, 4]], tokens), [{ text: '[SEG]', plain: true }])
  assert.deepEqual(
    stretches(
      '<a>[SEG]</a>[SEG]',
      [
        [3, 8],
        [12, 17],
      ],
      tokens,
    ),
    [
      { text: '<a>', plain: false },
      { text: '[SEG]', plain: true },
      { text: '</a>', plain: false },
      { text: '[SEG]', plain: true },
    ],
  )
})

/** The golden tokenizer with a beginning that the post-processor adds, as Llama's has, and its tokens in the vocabulary itself. */
function withBegin(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'plain-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const json = JSON.parse(readFileSync(golden, 'utf8'))
  const bos = json.added_tokens[0]
  json.post_processor = {
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: bos.content, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    pair: [],
    special_tokens: { [bos.content]: { id: bos.content, ids: [bos.id], tokens: [bos.content] } },
  }
  json.model.ignore_merges = true
  for (const { content, id } of json.added_tokens) json.model.vocab[content] = id
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(json))
  return dir
}

test('what the post-processor adds also surrounds fenced words, and a token listed in the vocabulary is not found by its spelling', (t) => {
  const tokenizer = loadTokenizer(withBegin(t))
  const begin = tokenizer.encode('')[0]!
  const seg = tokenizer.requireId('[SEG]')
  const ids = [...tokenizer.encode('[SEG]', { plain: [[0, 5]] })]
  assert.equal(ids[0], begin)
  assert.ok(!ids.includes(seg))
  assert.deepEqual(ids.slice(1), [...tokenizer.encode('[SEG]', { plain: [[0, 5]], addSpecial: false })])
  assert.deepEqual([...tokenizer.encode('[SEG]')], [begin, seg])
  assert.equal(tokenizer.decode(ids.slice(1)), '[SEG]')
})
