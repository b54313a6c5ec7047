// Language: captions of regions, answers to segmentation questions, and a [SEG] state that means what the words say, in the vectors
// the segmenter knows. The image encoders stay as they are.
import { word } from '../../../src/data/index.ts'
import { type Features, type Loaded, teacherForceRows } from '../../../src/models/index.ts'
import { cat, noGrad, type Tensor } from '../../../src/tensor/index.ts'
import { regionQuestions, segmentAnswers, segmentQuestions } from '../../../src/text/index.ts'
import { runStage } from './stage.ts'
import { type Batch, bagsOf, enriched, pixelsOf, type Row, type ScenePool } from './world.ts'

export interface WordsStage {
  steps: number
  images: number
  learningRate: number
  /** Share of captions that name one or two attributes and often fit several objects. */
  terse: number
  /** Do these ever name the colour, which tells most objects apart? */
  terseColour: boolean
}

export function trainWords(loaded: Loaded, table: Tensor, pool: ScenePool, stage: WordsStage): void {
  const { model, prompter } = loaded
  const parts = /^(mlp1|language_model|text_hidden_fcs)\./
  const params = new Map([...model.parameters()].filter(([name]) => parts.test(name)))
  const spread = table.square().mean().item()
  const encode = (text: string) => prompter.tokenizer.encode(text + prompter.template.suffix, { addSpecial: false })
  const loss = (step: number) => {
    const batch = pool.batch(step, stage.images)
    const { rows, random } = batch
    const vision = noGrad(() => model.visionFeatures(pixelsOf(batch, 'pixels')))
    const features = (row: Row): Features => {
      const { tiles, height, width } = batch.inputs[row.image]!
      const none = vision.narrow(0, 0, 0)
      return {
        vision: vision.narrow(0, row.image, 1),
        sam: { level0: none, level1: none, level2: none },
        tiles,
        height,
        width,
      }
    }
    const described = rows.map((row) => ({
      prompt: prompter.describe(features(row), row.mask, random.pick(regionQuestions)),
      answer: encode(captionOf(row, batch, stage)),
    }))
    const asked = rows.map((row) => (random.uniform() < 0.5 ? row.description : enriched(row, 0.5, random)))
    const segmented = rows.map((row, i) => ({
      prompt: prompter.segment(features(row), { question: random.pick(segmentQuestions(word(asked[i]!, random))) }),
      answer: encode(random.pick(segmentAnswers)),
    }))
    const all = [...described, ...segmented]
    const pass = teacherForceRows(
      model,
      all.map((r) => r.prompt),
      all.map((r) => r.answer),
    )
    const { logps } = pass.logProbs()
    const R = rows.length
    const nll = (from: number) =>
      logps
        .narrow(0, from, R)
        .sum()
        .div(-all.slice(from, from + R).reduce((n, r) => n + r.answer.length, 0))
    const states = cat(segmented.map((r, i) => pass.stateAt(R + i, r.answer.indexOf(prompter.segId))))
    const meaning = model.segPrompts(states).sub(bagsOf(asked).matmul(table)).square().mean().div(spread)
    const [caption, answer] = [nll(0), nll(R)]
    return { loss: caption.add(answer).add(meaning), figures: { caption, answer, meaning } }
  }
  runStage({ name: 'words', params, steps: stage.steps, learningRate: stage.learningRate, loss })
}

function captionOf(row: Row, { random }: Batch, stage: WordsStage): string {
  const { colour, shape, size, texture } = row.object
  const few = [{ shape }, { size, shape }, { size, shape }, { texture, shape }]
  if (random.uniform() < stage.terse)
    return word(random.pick(stage.terseColour ? [...few, { colour, shape }] : few), random)
  return word(random.uniform() < 0.5 ? row.description : enriched(row, 0.5, random), random)
}
