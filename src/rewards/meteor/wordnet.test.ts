import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { encodeTable } from '../../../scripts/lib/wordnet-table.ts'
import { Mismatch } from '../../core/index.ts'
import { decodeTable, posNames } from './table.ts'
import { readWordNet, WordNet, wordNet } from './wordnet.ts'

const asset = fileURLToPath(new URL('../../../assets/wordnet-3.0.bin.br', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'wordnet-'))
after(() => rmSync(folder, { recursive: true }))

test('the shipped table has all lemmas of WordNet 3.0 in less than 2 MB, with its licence beside it', () => {
  const words = wordNet()
  assert.equal(words.numKeys, 147306)
  assert.ok(statSync(asset).size < 2e6)
  assert.match(
    readFileSync(join(asset, '..', 'wordnet-3.0.LICENSE.txt'), 'utf8'),
    /Copyright 2006 by Princeton University/,
  )
})

test('every key is found under its own number', () => {
  const words = wordNet()
  for (let id = 0; id < words.numKeys; id++) assert.equal(words.idOf(words.keyOf(id)), id)
  for (const absent of ['', 'qqq', 'dog ', 'd\u00f6g', 'zzzzzz', '\u0000', 'dog\n'])
    assert.equal(words.idOf(absent), -1)
})

test('parts of speech are kept apart', () => {
  const words = wordNet()
  assert.deepEqual(
    posNames.map((pos) => words.has('fast', pos)),
    [true, true, true, true],
  )
  assert.deepEqual(
    posNames.map((pos) => words.has('quickly', pos)),
    [false, false, false, true],
  )
  assert.ok(words.has('hot_dog', 'noun'))
})

test('morphy asks the exceptions, then the rules, then the rules again', () => {
  const words = wordNet()
  assert.deepEqual(words.morphy('geese', 'noun'), ['goose'])
  assert.deepEqual(words.morphy('ran', 'verb'), ['run'])
  assert.deepEqual(words.morphy('axes', 'noun'), ['ax', 'axis'])
  assert.deepEqual(words.morphy('churches', 'noun'), ['church'])
  assert.deepEqual(words.morphy('running', 'verb'), ['run'])
  assert.deepEqual(words.morphy('quickest', 'adj'), ['quick'])
  assert.deepEqual(words.morphy('qqqs', 'noun'), [])
  // A repeated line of the exception list replaces the earlier one.
  assert.deepEqual(words.morphy('aurar', 'noun'), ['eyrir'])
})

test('synonyms are the one-word lower-case names of all synsets', () => {
  const words = wordNet()
  const couch = ['cast', 'couch', 'frame', 'lounge', 'put', 'redact', 'sofa']
  assert.deepEqual(words.synonyms('couch').sort(), couch)
  assert.deepEqual(words.synonyms('Couches').sort(), couch)
  assert.deepEqual(words.synonyms('pictur'), [])
  assert.ok(!words.synonyms('paris').includes('paris'))
})

test('a table keeps what it was built from', () => {
  const synonyms = [
    new Map([
      ['b', new Set(['b', 'a'])],
      ['a', new Set<string>()],
    ]),
    new Map([['b', new Set(['c'])]]),
    new Map<string, Set<string>>(),
    new Map([['c', new Set(['c', 'b', 'a'])]]),
  ]
  const exceptions = [new Map<string, string[]>(), new Map([['bb', ['b', 'c']]]), new Map(), new Map()]
  const words = new WordNet(decodeTable(encodeTable({ synonyms, exceptions }), 'test'))
  assert.deepEqual(words.synonyms('b').sort(), ['a', 'b', 'c'])
  assert.deepEqual(words.synonyms('c').sort(), ['a', 'b', 'c'])
  assert.deepEqual(words.synonyms('a'), [])
  assert.deepEqual(words.morphy('bb', 'verb'), ['b'])
})

test('a damaged, cut or foreign table is refused', () => {
  const bytes = encodeTable({ synonyms: posNames.map(() => new Map([['a', new Set('a')]])), exceptions: [] })
  const damaged = Uint8Array.from(bytes)
  damaged[damaged.length - 1]! ^= 1
  for (const wrong of [
    damaged,
    bytes.slice(0, -1),
    bytes.slice(0, 10),
    new Uint8Array(0),
    Buffer.from('x'.repeat(99)),
  ]) {
    assert.throws(() => decodeTable(wrong, 'test'), Mismatch)
  }
  const path = join(folder, 'cut.br')
  writeFileSync(path, readFileSync(asset).subarray(0, 5000))
  assert.throws(() => readWordNet(path), Mismatch)
  assert.throws(() => readWordNet(join(folder, 'absent')), Mismatch)
})
