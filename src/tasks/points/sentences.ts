// Sentences of published benchmarks, answered by a policy with its segmenter: greedy, one mask a sentence.
import type { RgbImage } from '../../image/index.ts'
import { type Mask, maskArea, maskFromDense } from '../../mask/index.ts'
import { tidy, tidyNoGrad } from '../../tensor/index.ts'
import type { AnswerSentences, SentenceAnswer } from '../kind.ts'
import { openItem, type PointItem, type PointSetup } from './item.ts'
import { askLooks, type PointWords } from './multi-turn.ts'

type MaskOf = (item: PointItem, words: PointWords) => Mask | null

interface Asked {
  image: RgbImage
  /** What the segmenter read, once for all sentences of the image. */
  sam: object
  query: string
  /** Pixels that the prompt of the object may come from. */
  known: Mask
}

/** The target is hidden from a policy that gives the prompt (joint); in the other modes the prompt of the object comes from it. */
export function answerSentences(setup: PointSetup, maskOf: MaskOf, maxRows: number): AnswerSentences {
  const isGiven = setup.config.mode !== 'joint'
  return (images) =>
    tidyNoGrad(() => {
      const asked = images.map(({ image, sentences, target }) => {
        const sam = setup.sam.encode(image)
        const { height, width } = image
        const nothing = () => maskFromDense(new Uint8Array(height * width), height, width)
        const known = (i: number) => (isGiven ? target(i) : nothing())
        return sentences.map((query, i): Asked => ({ image, sam, query, known: known(i) }))
      })
      const flat = asked.flat()
      const answers: SentenceAnswer[] = []
      for (let at = 0; at < flat.length; at += maxRows)
        answers.push(...tidy(() => answerRows(setup, maskOf, flat.slice(at, at + maxRows))))
      return asked.map((list) => answers.splice(0, list.length))
    })
}

/** An object without a pixel has no prompt: its sentence has no mask. */
function answerRows(setup: PointSetup, maskOf: MaskOf, asked: readonly Asked[]): SentenceAnswer[] {
  const isAsked = ({ known }: Asked) => setup.config.mode === 'joint' || maskArea(known) > 0
  const items = asked.flatMap((one) => {
    const { image, query, known: mask, sam } = one
    return isAsked(one) ? [openItem(setup, { id: query, image, query, mask }, sam)] : []
  })
  const words = items.length > 0 ? askLooks(setup, items).map(([greedy]) => greedy!) : []
  const answers = items.map((item, i) => ({ text: words[i]!.text, mask: maskOf(item, words[i]!) }))
  return asked.map((one) => (isAsked(one) ? answers.shift()! : { text: '', mask: null }))
}
