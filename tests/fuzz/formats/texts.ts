// SentencePiece models, and what a model writes when it is asked for points.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Mismatch } from '../../../src/core/index.ts'
import { PointAnswerConfig, parsePointAnswer, pointModes } from '../../../src/tasks/index.ts'
import { openSentencePiece } from '../../../src/text/sentencepiece.ts'
import { damageBytes } from '../bytes.ts'
import type { Format } from '../format.ts'
import { damageJson } from '../json.ts'
import { damageMessage } from '../protobuf.ts'

const golden = join(import.meta.dirname, '../../fixtures/golden/sentencepiece-tiny')
const texts = ['a red box', 'ab '.repeat(200), '\u0000\ud800 \u{1f600}', '  a   a ']

export const sentencePiece: Format = {
  name: 'sentencepiece',
  async setup() {
    const seeds = ['bpe-dummy-prefix', 'bpe-internlm2', 'unigram'].map((name) =>
      readFileSync(join(golden, name, 'tokenizer.model')),
    )
    return (random) => {
      const { bytes, note } = damageMessage(random.pick(seeds), random, () => true)
      return { files: { 'tokenizer.model': bytes }, note }
    }
  },
  async read(folder) {
    const model = openSentencePiece(readFileSync(join(folder, 'tokenizer.model')))
    let refused = 0
    for (const text of texts) {
      try {
        model.decode(model.encode(text))
      } catch (error) {
        if (!(error instanceof Mismatch)) throw error
        refused++
      }
    }
    return `${model.size} pieces, ${refused} refused`
  },
}

const frame = { width: 640, height: 480 }
const answers = [
  [{ point_2d: [12, 40], label: 'a' }, { point_2d: [600, 470] }],
  { negatives: [[1, 2]], positives: [[3, 4]], box: [1, 2, 30, 40] },
  { bbox_2d: [10, 20, 300, 400], points: [[5, 5]] },
  [],
]

export const pointsAnswer: Format = {
  name: 'points',
  async setup() {
    return (random) => {
      const { text, note } = damageJson(random.pick(answers), random)
      const around = random.pick(['', '```json\n', '<think>a</think><answer>', 'Sure: ', '<answer><answer>', '[[{"'])
      const whole = Buffer.concat([
        Buffer.from(around),
        Buffer.from(text),
        Buffer.from(random.pick(['', '\n```', '</answer>'])),
      ])
      const { bytes } = random.below(4) === 0 ? damageBytes(whole, random) : { bytes: whole }
      return { files: { 'answer.txt': bytes }, note, expect: 'inside' }
    }
  },
  /** Whatever the model wrote: points inside the image, counts that add up. */
  async read(folder) {
    const text = readFileSync(join(folder, 'answer.txt'), 'utf8')
    for (const mode of pointModes)
      for (const thinking of [false, true]) {
        const { negatives, positives, counts } = parsePointAnswer(
          text,
          frame,
          PointAnswerConfig.parse({ mode, thinking }),
        )
        const outside = [...negatives, ...positives].some(([x, y]) => !(x >= 0 && y >= 0 && x <= 640 && y <= 480))
        if (outside || counts.raw !== counts.kept + counts.oob + counts.dup + counts.extra)
          return `${mode}: ${JSON.stringify({ negatives, positives, counts }).slice(0, 200)}`
      }
    return 'inside'
  },
}
