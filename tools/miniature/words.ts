// Trains the language model: captions of regions, answers to segmentation questions, and a [SEG] state equal to the sum of the
// segmenter's attribute vectors. The image encoders are frozen.

import { type Features, type Loaded, Sa2VAFamily } from '../../src/models/index.ts'
import { readRows, segmentRow } from '../../src/tasks/index.ts'
import { noGrad, type Tensor } from '../../src/tensor/index.ts'
import { regionQuestions } from '../../src/text/index.ts'
import { runStage, type StageOptions } from './stage.ts'
import { bagsOf, demandFor, type Pool, pixelsOf, type Row, type Terseness } from './world.ts'

export function trainWords(loaded: Loaded, table: Tensor, pool: Pool, stage: StageOptions & Terseness): void {
  const { model, prompter } = loaded
  const family = new Sa2VAFamily(loaded)
  const parts = /^(mlp1|language_model|text_hidden_fcs)\./
  const params = new Map([...model.parameters()].filter(([name]) => parts.test(name)))
  const spread = table.square().mean().item()
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
      answer: family.completion(pool.word(pool.caption(row, random, stage), random)),
    }))
    const asked = rows.map((row) => demandFor(row, random))
    const segmented = rows.map((row, i) => segmentRow(family, features(row), pool.word(asked[i]!, random), random))
    const { caption, answer, states } = readRows(family, described, segmented)
    const meaning = model.segPrompts(states).sub(bagsOf(asked, pool.kinds).matmul(table)).square().mean().div(spread)
    return { loss: caption.add(answer).add(meaning), metrics: { caption, answer, meaning } }
  }
  runStage({ name: 'words', params, steps: stage.steps, learningRate: stage.learningRate, loss })
}
