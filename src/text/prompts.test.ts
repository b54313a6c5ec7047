import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { encodeConversation } from '../../tests/support/conversation.ts'
import { readInt64 } from '../../tests/support/golden-text.ts'
import { Mismatch } from '../core/index.ts'
import type { Tokenizer } from './base-tokenizer.ts'
import {
  cutAnswer,
  regionCaptionPrompt,
  regionQuestion,
  regionString,
  segmentPrompt,
  segmentQuestion,
} from './prompts.ts'
import { chatTemplate, chatTemplates } from './templates.ts'
import { loadTokenizer } from './tokenizer.ts'

const dir = fileURLToPath(new URL('../../tests/fixtures/golden/sa2va-tiny', import.meta.url))
const golden = JSON.parse(readFileSync(join(dir, 'golden.json'), 'utf8')) as Record<
  'cap_question' | 'seg_question',
  string
>
const tokenizer = loadTokenizer(dir)
const template = chatTemplates.phi3_chat
const context = tokenizer.requireId('<IMG_CONTEXT>')

/** Number of image tokens between two marker ids. */
function contextBetween(ids: readonly number[], open: string, close: string): number {
  const part = ids.slice(ids.indexOf(tokenizer.requireId(open)), ids.indexOf(tokenizer.requireId(close)))
  return part.filter((id) => id === context).length
}

describe('prompts', () => {
  test('the region prompt has the ids the reference built', () => {
    const ids = readInt64(join(dir, 'golden.safetensors'), 'cap.input_ids')
    const tiles = contextBetween(ids, '<img>', '</img>')
    const prompt = regionCaptionPrompt({
      numTiles: tiles / 64,
      tokensPerTile: 64,
      regionTokens: contextBetween(ids, '<vp>', '</vp>'),
      question: golden.cap_question,
      template,
    })
    assert.deepEqual([...tokenizer.encode(prompt)], ids)
  })

  test('the segmentation prompt has the ids the reference built', () => {
    const ids = readInt64(join(dir, 'golden.safetensors'), 'seg.input_ids')
    const numTiles = contextBetween(ids, '<img>', '</img>') / 64
    const prompt = segmentPrompt({ numTiles, tokensPerTile: 64, question: golden.seg_question, template })
    assert.deepEqual([...tokenizer.encode(prompt.text)], ids)
  })

  test('one tile token and one region token give the full string of the released evaluation', () => {
    assert.equal(
      regionCaptionPrompt({ numTiles: 1, tokensPerTile: 1, regionTokens: 1, template }),
      '<|user|>\n<img><IMG_CONTEXT></img>\nThere are 1 part regions in the picture: region1<vp><IMG_CONTEXT></vp>.\n\n' +
        'Please give me a short description of the region in the picture marked by region1.<|end|>\n<|assistant|>\n',
    )
  })

  test('two regions are listed, one without cells stays an empty bracket pair', () => {
    assert.equal(
      regionString([1, 0]),
      '\nThere are 2 part regions in the picture: region1<vp><IMG_CONTEXT></vp>, region2<vp></vp>.\n',
    )
  })

  test('a phrase is asked in lower case without its full stop, after a newline and a space', () => {
    const { before, words, after } = segmentQuestion('The Red circle. ')
    assert.equal(before + words + after, '<image>\n Please segment the red circle in this image.')
    const { text } = segmentPrompt({
      numTiles: 1,
      tokensPerTile: 2,
      phrase: 'A dog',
      template: chatTemplates.qwen_chat,
    })
    assert.equal(
      text,
      '<|im_start|>user\n<img><IMG_CONTEXT><IMG_CONTEXT></img>\n Please segment a dog in this image.<|im_end|>\n<|im_start|>assistant\n',
    )
  })

  test('a question without <image>, no region and a broken count are a Mismatch', () => {
    const tokens = { numTiles: 1, tokensPerTile: 1, template }
    assert.throws(() => regionCaptionPrompt({ ...tokens, regionTokens: 1, question: 'What?' }), Mismatch)
    assert.throws(() => regionCaptionPrompt({ ...tokens, regionTokens: [] }), Mismatch)
    assert.throws(() => regionCaptionPrompt({ ...tokens, numTiles: 0, regionTokens: 1 }), Mismatch)
    assert.throws(() => regionCaptionPrompt({ ...tokens, regionTokens: 1.5 }), Mismatch)
  })

  test('a caption is cut at the first stop word and loses added tokens and double spaces', () => {
    assert.equal(cutAnswer(' <p> a red  circle </p> [SEG]\n.<|end|> rest', ['<|end|>']), 'a red circle .')
    assert.equal(cutAnswer('a<|im_end|>b<|end|>', ['<|end|>', '<|im_end|>']), 'a')
  })

  test('cleaning a caption is a fixed point: what it takes out leaves no token behind', () => {
    const cases = [
      ['a star <|im_<p>end|> x', 'a star x'],
      ['a <IMG_CON<img>TEXT> star', 'a star'],
      ['<<<p>p>p>a [S[SEG]EG] b', 'a b'],
      ['a <|e<vp>nd|> b', 'a'], // a stop word that appears when a token goes
    ]
    for (const [text, clean] of cases) {
      assert.equal(cutAnswer(text!, ['<|end|>']), clean)
      assert.equal(cutAnswer(clean!, ['<|end|>']), clean)
    }
  })

  const hostile = [
    'the red <image> star',
    'a <IMG_CONTEXT> star',
    'x <|im_end|> y',
    '[seg]', // [SEG] in the lower case of a phrase
    '[SEG]',
    '</img><img>',
    '<|endoftext|>',
  ]
  const ask = (phrase: string) => {
    const words = { before: '<image>\nPlease segment ', words: phrase, after: '.' }
    return segmentPrompt({ numTiles: 1, tokensPerTile: 4, question: words, template: chatTemplates.qwen_chat })
  }
  const added = (ids: Iterable<number>) =>
    Array.from(ids).filter((id) => tokenizer.specialIds.has(id) || id === context)

  test('a phrase that spells a placeholder or a special token becomes neither, and stays readable', () => {
    const usual = added(tokenizer.encode(ask('a star').text))
    for (const phrase of hostile) {
      const { text, plain } = ask(phrase)
      assert.equal(text.slice(...(plain[0] as [number, number])), phrase)
      const ids = tokenizer.encode(text, { plain })
      assert.deepEqual(added(ids), usual, phrase)
      assert.equal(tokenizer.decode(ids), text)
    }
  })

  test('a harmless phrase has the ids of the one string, alone and where the fence is forced by another', () => {
    for (const phrase of ['a star', 'the "red" one!', 'ä < b > |', '']) {
      const { text, plain } = ask(phrase)
      assert.deepEqual(tokenizer.encode(text, { plain }), tokenizer.encode(text))
    }
    const { text, plain } = ask('<|im_end|>')
    const inside = [...tokenizer.encode(text, { plain })]
    const around = [...tokenizer.encode(ask('').text)]
    assert.deepEqual(inside.slice(0, 8), around.slice(0, 8))
    assert.deepEqual(inside.slice(-6), around.slice(-6))
  })
})

describe('templates', () => {
  test('the four templates have the strings of the releases', () => {
    assert.equal(chatTemplates.phi3_chat.instruction('x'), '<|user|>\nx<|end|>\n<|assistant|>\n')
    assert.equal(chatTemplates.qwen_chat.instruction('x'), '<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n')
    assert.equal(chatTemplates.internlm2_chat.instruction('x'), chatTemplates.qwen_chat.instruction('x'))
    assert.equal(chatTemplates.vicuna.instruction('x'), 'USER: x ASSISTANT:')
    assert.deepEqual(chatTemplates.qwen_chat.stopWords, ['<|im_end|>', '<|endoftext|>'])
  })

  test('an unknown template name is a Mismatch that lists the known ones', () => {
    assert.throws(() => chatTemplate('llama3'), /phi3_chat, qwen_chat, internlm2_chat, vicuna, got llama3/)
    assert.equal(chatTemplate('vicuna').name, 'vicuna')
  })
})

describe('encodeConversation', () => {
  const turns = [
    { input: 'What is it?', output: 'a red circle' },
    { input: 'Please segment it.', output: 'Sure, it is [SEG].' },
  ]
  const enc = (text: string) => [...tokenizer.encode(text)]
  const blank = (n: number) => new Array<number>(n).fill(-100)

  test('parts are encoded apart; only answer and suffix carry labels; turns follow each other', () => {
    const parts = turns.map((turn) => ({
      input: enc(template.instruction(turn.input)),
      answer: enc(`${turn.output}<|end|>`),
      sep: enc('\n'),
    }))
    const { inputIds, labels, truncated } = encodeConversation(turns, template, tokenizer, { maxLength: 8192 })
    assert.deepEqual(
      [...inputIds],
      parts.flatMap((p) => [...p.input, ...p.answer, ...p.sep]),
    )
    assert.deepEqual(
      [...labels],
      parts.flatMap((p) => [...blank(p.input.length), ...p.answer, ...blank(p.sep.length)]),
    )
    assert.equal(truncated, 0)
  })

  test('vicuna ends each answer with EOS, with loss, and a tokenizer with BOS begins each turn with it', () => {
    const withBos: Tokenizer = Object.create(tokenizer, {
      bosId: { value: 1 },
      encode: { value: tokenizer.encode.bind(tokenizer) },
      eosId: { value: 482 },
    })
    const { inputIds, labels } = encodeConversation(turns, chatTemplates.vicuna, withBos, { maxLength: 999 })
    const first = enc('USER: What is it? ASSISTANT:')
    const answer = enc('a red circle')
    const head = [1, ...first, ...answer, 482, ...enc('\n'), 1]
    assert.deepEqual([...inputIds].slice(0, head.length), head)
    assert.deepEqual([...labels].slice(0, head.length), [-100, ...blank(first.length), ...answer, 482, -100, -100])
  })

  test('with suffix as EOS only the first turn begins with BOS', () => {
    const withBos: Tokenizer = Object.create(tokenizer, {
      bosId: { value: 1 },
      encode: { value: tokenizer.encode.bind(tokenizer) },
    })
    const { inputIds } = encodeConversation(turns, template, withBos, { maxLength: 999 })
    assert.equal(inputIds[0], 1)
    assert.equal([...inputIds].filter((id) => id === 1).length, 1)
  })

  test('an answer without loss is context only', () => {
    const { labels } = encodeConversation([{ ...turns[0]!, withLoss: false }], template, tokenizer, { maxLength: 99 })
    assert.ok(labels.every((label) => label === -100))
  })

  test('a long conversation is cut and says by how much', () => {
    const whole = encodeConversation(turns, template, tokenizer, { maxLength: 999 })
    const cut = encodeConversation(turns, template, tokenizer, { maxLength: 10 })
    assert.deepEqual(cut.inputIds, whole.inputIds.slice(0, 10))
    assert.deepEqual(cut.labels, whole.labels.slice(0, 10))
    assert.equal(cut.truncated, whole.inputIds.length - 10)
  })

  test('the released region question reaches the model whole', () => {
    const text = tokenizer.decode(tokenizer.encode(template.instruction(regionQuestion)))
    assert.equal(text, template.instruction(regionQuestion))
  })
})

test('a phrase loses one full stop at its end and none inside', () => {
  assert.equal(segmentQuestion(' The No. 5 shirt. ').words, 'the no. 5 shirt')
  assert.equal(segmentQuestion('a cup').words, 'a cup')
})

test('the words of a phrase are found where they were put, also if the question has them before', () => {
  const asked = segmentPrompt({ numTiles: 1, tokensPerTile: 4, phrase: 'segment', template })
  assert.equal(asked.plain.length, 1)
  const [start, end] = asked.plain[0]!
  assert.equal(asked.text.slice(start, end), 'segment')
  assert.match(asked.text.slice(0, start), /Please segment $/)
})
