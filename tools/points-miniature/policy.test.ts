import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { resolvePoints } from '../../src/tasks/index.ts'
import { parsePointAnswer } from '../../src/tasks/points/parse.ts'
import { answerTexts } from './drawn.ts'
import { newPolicy } from './policy.ts'

test('each answer of the drawn start is one token, decodes to a text the parser reads, and splits no numbers of a question', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'policy-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const { model, tokenizer, cfg } = newPolicy(
    dir,
    1,
    ['the box [15, 50, 80, 90]. Red left:'],
    'drawn',
    'cpu',
    answerTexts,
  )
  const encode = (text: string) => [...tokenizer.encode(text, { addSpecial: false })]
  const ids = answerTexts.map(encode)
  assert.deepEqual(new Set(ids.map((own) => own.length)), new Set([1]))
  assert.equal(new Set(ids.flat()).size, 101)
  const last = cfg.llm.vocab_size - 1
  assert.deepEqual(ids[0], [last - 100]) // the cells follow in order
  assert.deepEqual(ids.at(-1), [last])
  const frame = { width: 160, height: 160 }
  const read = (own: number[]) =>
    parsePointAnswer(
      tokenizer.decode(Int32Array.from(own), { skipSpecial: true }),
      frame,
      resolvePoints({ maxPoints: 1 }, 'thousand'),
    )
  assert.deepEqual(read(ids[0]!).negatives, [])
  assert.equal(read(ids[0]!).format, 1)
  assert.deepEqual(read(ids[1]!).negatives, [[8, 8]])
  assert.deepEqual(read(ids[34]!).negatives, [[56, 56]])
  assert.ok(encode('[50, 150]').length > 5)
  for (const tensor of model.parameters().values()) tensor.dispose()
})
