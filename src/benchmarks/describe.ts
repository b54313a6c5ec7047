// Questions about regions become words, greedily.
import type { RgbImage } from '../image/index.ts'
import type { Mask } from '../mask/index.ts'
import { type Features, generate, type Loaded, prepareImage } from '../models/index.ts'
import { noGrad, tidy } from '../tensor/index.ts'
import { cleanCaption } from '../text/index.ts'

export interface RegionQuestion {
  /** Questions with the same image share its features. */
  image: RgbImage
  regions: readonly Mask[]
  question: string
}

export type DescribeRegions = (questions: readonly RegionQuestion[]) => string[]

export interface DescribeOptions {
  maxNewTokens: number
  maxTiles: number | null
}

export function describeWith({ model, prompter, cfg }: Loaded, options: DescribeOptions): DescribeRegions {
  const { stopWords } = prompter.template
  const encode = (image: RgbImage) =>
    model.encode(prepareImage(image, cfg, { maxTiles: options.maxTiles ?? undefined }), { only: 'vision' })
  return (questions) =>
    noGrad(() =>
      tidy(() => {
        const features = new Map<RgbImage, Features>()
        const prompts = questions.map(({ image, regions, question }) => {
          const encoded = features.get(image) ?? encode(image)
          features.set(image, encoded)
          return prompter.describe(encoded, regions, question)
        })
        const settings = { maxNewTokens: options.maxNewTokens, stopStrings: stopWords }
        const rows = generate(model, prompter.tokenizer, prompts, settings)
        return rows.map(({ text }) => cleanCaption(text, stopWords))
      }),
    )
}
