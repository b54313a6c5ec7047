import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { captionWords, planScene } from '../../src/scenes/index.ts'
import { chatTemplates, loadTokenizer, regionCaptionPrompt } from '../../src/text/index.ts'
import { corpusLines, sa2vaAddedTokens, trainSceneTokenizer } from './corpus.ts'

const scratch = mkdtempSync(join(tmpdir(), 'roundtrip-tokenizer-'))
after(() => rmSync(scratch, { recursive: true }))

describe('trainSceneTokenizer', () => {
  const options = { seed: 1, scenes: 300, maxMerges: 400 }
  const trained = trainSceneTokenizer(options)
  writeFileSync(join(scratch, 'tokenizer.json'), JSON.stringify(trained))
  const tokenizer = loadTokenizer(scratch)
  const pieces = (text: string) => Array.from(tokenizer.encode(text), (id) => tokenizer.tokenText(id))

  test('training again gives the same tokenizer', () => {
    assert.deepEqual(trainSceneTokenizer(options), trained)
  })

  test('every word of a caption is one token with its leading space', () => {
    assert.deepEqual(
      captionWords.filter((w) => tokenizer.encode(` ${w}`).length !== 1),
      [],
    )
  })

  test('the vocabulary stays small and ends with the added tokens, in order', () => {
    assert.ok(tokenizer.vocabSize < 256 + 300 + 17, `${tokenizer.vocabSize}`)
    const first = tokenizer.vocabSize - sa2vaAddedTokens.length
    assert.deepEqual(
      sa2vaAddedTokens.map((token) => tokenizer.requireId(token)),
      sa2vaAddedTokens.map((_, i) => first + i),
    )
    assert.equal(tokenizer.eosId, tokenizer.requireId('<|im_end|>'))
  })

  test('prompts, answers and unseen text round-trip', () => {
    const lines = [...corpusLines({ seed: 2, scenes: 20 }), 'Ünïcödé 中文 🎉\t\r\n  ', '']
    for (const line of lines) assert.equal(tokenizer.decode(tokenizer.encode(line)), line)
  })

  test('the phi3 markers stay plain text and merge with adjacent text', () => {
    const prompt = regionCaptionPrompt({
      numTiles: 1,
      tokensPerTile: 2,
      regionTokens: 1,
      template: chatTemplates.phi3_chat,
    })
    assert.deepEqual(pieces(prompt).slice(-6), ['.<|', 'end', '|>\n', '<|', 'assistant', '|>\n'])
    assert.deepEqual(pieces('Sure, it is [SEG].<|end|>'), ['Sure', ',', ' it', ' is', ' ', '[SEG]', '.<|', 'end', '|>'])
  })

  test('a caption of a scene never seen takes one token a word', () => {
    for (let i = 0; i < 50; i++) {
      const { caption } = planScene(99, i)
      assert.equal(tokenizer.encode(caption).length, caption.split(' ').length, caption)
    }
  })
})
