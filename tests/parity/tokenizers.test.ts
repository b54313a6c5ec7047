// Released tokenizers against Hugging Face's library: the table was computed by tests/support/tokenizer_table.py.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { packageRoot, sha256 } from '../../src/core/index.ts'
import { loadTokenizer } from '../../src/text/index.ts'
import { manyTexts } from '../support/many-texts.ts'
import { fetchTokenizers, releasedTokenizers } from '../support/released-tokenizers.ts'

interface Table {
  texts: string
  /** Full ids are stored of every so many texts. */
  every: number
  tokenizers: Record<string, { hashes: string; ids: number[][] }>
}

const table = JSON.parse(readFileSync(join(packageRoot(), 'tests/fixtures/tokenizers.json'), 'utf8')) as Table
const texts = manyTexts()
const { folder, skip } = fetchTokenizers()

test('the texts are those of the table: over 5,000, from many scripts', () => {
  assert.equal(sha256(texts.join('\0')), table.texts)
  assert.ok(texts.length >= 5000)
  const scripts = [
    'Latin',
    'Greek',
    'Cyrillic',
    'Hebrew',
    'Arabic',
    'Devanagari',
    'Thai',
    'Georgian',
    'Hangul',
    'Hiragana',
    'Han',
    'Gothic',
  ]
  for (const script of scripts) {
    const found = texts.filter((text) => new RegExp(`\\p{Script=${script}}`, 'u').test(text)).length
    assert.ok(found >= 10, `${script}: ${found}`)
  }
})

describe('released tokenizers', { skip }, () => {
  for (const name of releasedTokenizers)
    test(`${name}: ids and decoded texts equal those of Hugging Face's library`, () => {
      const tokenizer = loadTokenizer(folder!(name))
      const { hashes, ids: stored } = table.tokenizers[name]!
      const different: string[] = []
      for (const [i, text] of texts.entries()) {
        const ids = tokenizer.encode(text, { addSpecial: false })
        if (i % table.every === 0) assert.deepEqual([...ids], stored[i / table.every], JSON.stringify(text))
        const row = `${ids.join(',')}|${tokenizer.decode(ids)}|${tokenizer.decode(ids, { skipSpecial: true })}`
        if (sha256(row).slice(0, 8) !== hashes.slice(8 * i, 8 * i + 8)) different.push(JSON.stringify(text))
      }
      assert.deepEqual(different, [])
    })
})
