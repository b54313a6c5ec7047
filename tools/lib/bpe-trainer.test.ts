import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { Mismatch } from '../../src/core/index.ts'
import { loadTokenizer, type Tokenizer } from '../../src/text/index.ts'
import { trainByteLevelBpe } from './bpe-trainer.ts'

const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-bpe-'))
after(() => rmSync(scratch, { recursive: true }))

function load(json: unknown): Tokenizer {
  const path = join(scratch, 'tokenizer.json')
  writeFileSync(path, JSON.stringify(json))
  return loadTokenizer(path)
}

describe('trainByteLevelBpe', () => {
  test('the classical corpus gives the classical merges', () => {
    // low 5, lower 2, newest 6, widest 3; without spaces: one line a word.
    const lines = [
      ['low', 5],
      ['lower', 2],
      ['newest', 6],
      ['widest', 3],
    ].flatMap(([w, n]) => new Array<string>(n as number).fill(w as string))
    const { model } = trainByteLevelBpe(lines, { maxMerges: 4, addedTokens: [] })
    assert.deepEqual(model.merges, [
      ['e', 's'],
      ['es', 't'],
      ['l', 'o'],
      ['lo', 'w'],
    ])
  })

  test('frequent words with their leading space become one token and added tokens are not learned from', () => {
    const lines = new Array<string>(5).fill('the red circle [SEG][SEG].')
    const tokenizer = load(trainByteLevelBpe(lines, { maxMerges: 100, addedTokens: ['<|im_end|>', '[SEG]'] }))
    assert.deepEqual(
      Array.from(tokenizer.encode('the red circle [SEG]'), (id) => tokenizer.tokenText(id)),
      ['the', ' red', ' circle', ' ', '[SEG]'],
    )
    assert.equal(tokenizer.idOf('SEG'), undefined)
    assert.equal(tokenizer.requireId('[SEG]'), tokenizer.vocabSize - 1)
  })

  test('the same lines give the same file and unseen text still round-trips', () => {
    const lines = ['the small red circle', 'a blue square on the left', 'the red square']
    const options = { maxMerges: 60, addedTokens: ['[SEG]'] }
    const json = trainByteLevelBpe(lines, options)
    assert.equal(JSON.stringify(json), JSON.stringify(trainByteLevelBpe(lines, options)))
    const tokenizer = load(json)
    for (const text of ['中文 🎉 never seen\t\r\n', '', ' [SEG] '])
      assert.equal(tokenizer.decode(tokenizer.encode(text)), text)
  })

  test('a repeated added token is a Mismatch', () => {
    assert.throws(() => trainByteLevelBpe([], { maxMerges: 1, addedTokens: ['a', 'a'] }), Mismatch)
  })
})
