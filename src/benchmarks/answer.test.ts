import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { generate } from '../llm/index.ts'
import { maskArea, maskFromDense, maskIou, maskUnion } from '../mask/index.ts'
import { type GroundedFamily, openFamily } from '../models/index.ts'
import { makeScene } from '../scenes/index.ts'
import { cat, expectNoLeak, noGrad, tidy } from '../tensor/index.ts'
import { answerWith, drawUnion } from './answer.ts'

const model = fileURLToPath(new URL('../../assets/miniature', import.meta.url))
const family = openFamily(model, { dtype: 'float32' }) as GroundedFamily
after(() => {
  for (const t of family.module.parameters().values()) t.dispose()
})

const options = { mode: 'generate', maxNewTokens: 16, maxTiles: null, rows: 3 } as const
const scenes = [0, 1, 2].map((i) => makeScene(5, i))
const ask = (phrase: string) => `<image>\n Please segment ${phrase} in this image.`
const questions = scenes.map((s, i) => [s.caption, 'the star', 'the red circle'].slice(0, i + 1).map(ask))
const images = scenes.map(({ image }, i) => ({ image, questions: questions[i]! }))

/** One question alone, written out. */
function alone(image: (typeof scenes)[0]['image'], question: string) {
  return noGrad(() =>
    tidy(() => {
      const features = family.encode([family.prepare(image)])[0]!
      const [row] = generate(family.model, family.tokenizer, [family.segment(features, { question })], {
        maxNewTokens: 16,
        stopStrings: family.stopWords,
        segId: family.segId,
      })
      const { logits } = family.drawMasks(features, family.segPrompts(row!.segStates!))
      return { text: row!.text, mask: family.finishMasks(features, logits)[0]! }
    }),
  )
}

test('questions about several images, answered in batches, get the words and masks of each alone', () => {
  const together = answerWith(family, options)(images)
  assert.deepEqual(
    together,
    images.map(({ image, questions: list }) => list.map((question) => alone(image, question))),
  )
})

test('the miniature finds what the scenes mean', () => {
  const answers = answerWith(
    family,
    options,
  )(scenes.map(({ image, caption }) => ({ image, questions: [ask(caption)] })))
  const ious = answers.map(([found], i) => {
    const { mask, image } = scenes[i]!
    return maskIou(found!.mask!, maskFromDense(mask, image.height, image.width))
  })
  assert.ok(Math.max(...ious) > 0.3, `${ious}`)
})

test('forced answers are [SEG]. whatever the model would say, and their masks are drawn', () => {
  const answers = answerWith(family, { ...options, mode: 'forced' })(images).flat()
  assert.ok(answers.every((a) => a.text === '[SEG].' && a.mask !== null))
  assert.ok(answers.some((a) => maskArea(a.mask!) > 0))
})

test('masks of all [SEG] of an answer are OR-ed', () => {
  noGrad(() =>
    tidy(() => {
      const features = family.encode([family.prepare(scenes[1]!.image)])[0]!
      const states = ['the star', scenes[1]!.caption, 'the red circle'].map((phrase) => {
        const prompt = family.segment(features, { question: ask(phrase) })
        const { model: speaker, tokenizer, segId, stopWords: stopStrings } = family
        return generate(speaker, tokenizer, [prompt], { maxNewTokens: 16, stopStrings, segId })[0]!.segStates!
      })
      const parts = states.map((s) => drawUnion(family, features, s))
      const whole = drawUnion(family, features, cat(states))
      assert.deepEqual(whole, maskUnion(parts[0]!, ...parts.slice(1)))
      assert.ok(
        parts.some((part) => maskArea(part) < maskArea(whole)),
        'the parts differ',
      )
    }),
  )
})

test('answering leaves no tensor behind', () => {
  expectNoLeak(() => answerWith(family, options)(images.slice(0, 2)))
})
