// Questions about regions become words, greedily.
import type { RgbImage } from '../image/index.ts'
import { generate } from '../llm/index.ts'
import type { Mask } from '../mask/index.ts'
import type { GroundedFamily } from '../models/index.ts'
import { tidyNoGrad } from '../tensor/index.ts'
import { cutAnswer } from '../text/index.ts'
import { type AnswerOptions, encodeOnce } from './answer.ts'

export interface RegionQuestion {
  /** Questions with the same image share its features. */
  image: RgbImage
  regions: readonly Mask[]
  question: string
}

export type DescribeRegions = (questions: readonly RegionQuestion[]) => string[]

type DescribeOptions = Pick<AnswerOptions, 'maxNewTokens' | 'maxTiles'>

export function describeWith(family: GroundedFamily, options: DescribeOptions): DescribeRegions {
  const { stopWords } = family
  return (questions) =>
    tidyNoGrad(() => {
      const features = new Map<RgbImage, object>()
      const prompts = questions.map(({ image, regions, question }) => {
        const encoded = features.get(image) ?? encodeOnce(family, image, options.maxTiles)
        features.set(image, encoded)
        return family.describe(encoded, regions, question)
      })
      const settings = { maxNewTokens: options.maxNewTokens, stopStrings: stopWords }
      const rows = generate(family.model, family.tokenizer, prompts, settings)
      return rows.map(({ text }) => cutAnswer(text, stopWords))
    })
}
