import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatReward, lengthReward } from './builtin.ts'
import { cleanCaption, countWords, lengthFactor } from './caption.ts'
import { LengthShaping } from './config.ts'

test('a caption is cleaned of markers, white space and one pair of quotes, and of nothing else', () => {
  const rows: [string, string][] = [
    ['<p>a dog</p>[SEG]', 'a dog'],
    ['  this\nis\tvisible ', 'this is visible'],
    ['"a "big" dog"', 'a "big" dog'],
    ['\u201ca dog\u201d', 'a dog'],
    ['a\u0085b\u001cc\u3000d', 'a b c d'],
    ['a\ufeffb', 'a\ufeffb'],
    ['[SEG]', ''],
    ['"', '"'],
    ['', ''],
    ['<vp>x</vp> <img><IMG_CONTEXT><IMG_CONTEXT></img> y', 'x y'],
  ]
  for (const [text, clean] of rows) assert.equal(cleanCaption(text), clean)
  assert.equal(countWords(' a  b\n'), 2)
  assert.equal(countWords(''), 0)
})

test('the length factor follows its formula at its corners', () => {
  const s = LengthShaping.parse({})
  const rows: [number, number][] = [
    [0, 0.5],
    [5, 1 - 0.5 * (20 / 25)],
    [25, 1],
    [120, 1],
    [180, 1 - 0.3 * 0.5],
    [240, 0.7],
    [10_000, 0.7],
  ]
  for (const [words, factor] of rows) assert.ok(Math.abs(lengthFactor(words, s) - factor) < 1e-12, `${words}`)
  assert.equal(lengthFactor(0, { ...s, lambda: 1 }), 0.25)
})

test('length and form are separate rewards', () => {
  const a = { id: 's', reference: '' }
  assert.equal(lengthReward('caption').score({ ...a, caption: 'word '.repeat(30) }), 1)
  const form = formatReward('text')
  assert.deepEqual(
    ['It is [SEG].', 'It is.', '[SEG] [SEG]'].map((text) => form.score({ ...a, text })),
    [1, 0, 0],
  )
  const words = formatReward('caption')
  assert.deepEqual(
    ['a dog', '', ' " " ', 'a [SEG] dog'].map((caption) => words.score({ ...a, caption })),
    [1, 0, 0, 0],
  )
})

test('short and long captions have their own floor, and the power bends the factor of short ones', () => {
  const s = LengthShaping.parse({ floor: 0.1, floorLong: 0.9, lambdaLong: 1, power: 2 })
  assert.equal(lengthFactor(10_000, s), 0.9)
  const short = 1 - s.lambda * ((s.min - 5) / s.min) ** 2
  assert.ok(Math.abs(lengthFactor(5, s) - short) < 1e-12, `${lengthFactor(5, s)} against ${short}`)
})
