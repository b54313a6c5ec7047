// The one place where a benchmark meets a model: the questions about an image become masks, greedily.
// S hidden size, n [SEG] tokens of an answer.
import type { RgbImage } from '../image/index.ts'
import { generate, type PromptIds, teacherForce } from '../llm/index.ts'
import { type Mask, maskUnion } from '../mask/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import { cat, type Tensor, tidy, tidyNoGrad } from '../tensor/index.ts'

export interface ImageQuestions {
  image: RgbImage
  /** Whole questions with `<image>`. */
  questions: readonly string[]
}

export interface AskedImage extends ImageQuestions {
  /** Those of the questions. */
  sentences: readonly string[]
  /** What a sentence means, for answers that start with a prompt of the object. */
  target(sentence: number): Mask
}

export interface MaskAnswer {
  text: string
  /** All [SEG] masks OR-ed; null: no [SEG] that could be read. */
  mask: Mask | null
}

/** Answers in the order of images and questions. */
export type AnswerImages = (images: readonly AskedImage[]) => MaskAnswer[][]

export interface AnswerOptions {
  /** generate: the model writes its answer; forced: `[SEG].` is given, and only the mask is the model's. */
  mode: 'generate' | 'forced'
  maxNewTokens: number
  maxTiles: number | null
  /** Questions read at once. */
  rows: number
}

export const forcedAnswer = '[SEG].'

interface Question {
  features: object
  prompt: PromptIds
}

export function answerWith(
  family: GroundedFamily,
  options: AnswerOptions,
): (images: readonly ImageQuestions[]) => MaskAnswer[][] {
  return (images) =>
    tidyNoGrad(() => {
      const asked = images.map(({ image, questions }) => {
        const features = encodeOnce(family, image, options.maxTiles)
        return questions.map((question) => ({ features, prompt: family.segment(features, { question }) }))
      })
      const flat = asked.flat()
      const answers: MaskAnswer[] = []
      for (let at = 0; at < flat.length; at += options.rows) {
        answers.push(...tidy(() => answerRows(family, flat.slice(at, at + options.rows), options)))
      }
      let next = 0
      return asked.map((questions) => questions.map(() => answers[next++]!))
    })
}

/** The frozen features of one image; the only call of an encoder in this room. */
export function encodeOnce(family: GroundedFamily, image: RgbImage, maxTiles: number | null): object {
  return family.encode([family.prepare(image, maxTiles === null ? {} : { maxTiles })])[0]!
}

function answerRows(family: GroundedFamily, questions: readonly Question[], options: AnswerOptions): MaskAnswer[] {
  const prompts = questions.map((q) => q.prompt)
  const given = options.mode === 'forced' ? forcedAnswer : undefined
  const spoken = answersTo(family, prompts, options.maxNewTokens, given)
  return spoken.map(({ text, states }, i) => ({
    text,
    mask: states && tidy(() => drawUnion(family, questions[i]!.features, states)),
  }))
}

interface Spoken {
  text: string
  states: Tensor | null // [n, S]
}

/** Answers to prompts, generated or `given`, with the states of their [SEG]; null: an answer has none. */
export function answersTo(
  { model, tokenizer, stopWords, segId }: GroundedFamily,
  prompts: readonly PromptIds[],
  maxNewTokens: number,
  given?: string,
): Spoken[] {
  if (given === undefined) {
    const rows = generate(model, tokenizer, prompts, { maxNewTokens, stopStrings: stopWords, segId })
    return rows.map(({ text, segStates }) => ({ text, states: segStates }))
  }
  const ids = tokenizer.encode(given)
  const at = [...ids.keys()].filter((j) => ids[j] === segId)
  return prompts.map((prompt) => {
    // one more token, so that the last one of the answer is read too
    const pass = teacherForce(model, prompt, [Int32Array.from([...ids, 0])])
    return { text: given, states: at.length > 0 ? cat(at.map((j) => pass.stateAt(0, j))) : null }
  })
}

/** Every [SEG] of the answer draws a mask; pixels of any count. */
export function drawUnion(family: GroundedFamily, features: object, states: Tensor): Mask {
  const { logits } = family.drawMasks(features, family.segPrompts(states)) // [n, h, w]
  const one = (i: number) => family.finishMasks(features, logits.narrow(0, i, 1))[0]!
  const [first, ...others] = Array.from({ length: states.shape[0]! }, (_, i) => one(i))
  return maskUnion(first!, ...others)
}
