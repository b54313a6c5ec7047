// Creates assets/miniature from random weights in stages that replace the pre-training of a real model: image encoders, mask decoder,
// language model. dev/miniature.md describes the stages.
import { join } from 'node:path'
import { log } from '../src/core/index.ts'
import { exportSa2VA, type Loaded, openSa2VA } from '../src/models/index.ts'
import { setThreads } from '../src/tensor/index.ts'
import { pretrainSam, pretrainVision } from './miniature/encoders.ts'
import { makeMiniature } from './miniature/make.ts'
import { startSegmenter, trainSegmenter } from './miniature/segmenter.ts'
import { trainWords } from './miniature/words.ts'
import { type Pool, scenePool } from './miniature/world.ts'

const [out, seedText = '1'] = process.argv.slice(2)
if (!out) throw new Error('usage: make-miniature OUT [SEED]')
const seed = Number(seedText)
setThreads(1) // the number of threads decides the last bits
const untrained = join(out, 'untrained')
makeMiniature(untrained, seed)
const loaded = openSa2VA(untrained, { dtype: 'float32' })
const { model, cfg } = loaded
const pool = scenePool(cfg, 77, 2500)
pretrainVision(model, pool, { steps: 1000, images: 16, learningRate: 2e-3 })
pretrainSam(model, pool, { steps: 1000, images: 16, learningRate: 2e-3 })
const table = startSegmenter(model, seed, pool.kinds)
const decoder = { images: 10, learningRate: 4e-4, steps: 2500, withEncoder: false, fullSteps: 1000, background: 1 }
trainSegmenter(model, table, pool, decoder)
const whole = { ...decoder, withEncoder: true, fullSteps: 1 }
trainSegmenter(model, table, scenePool(cfg, 78, 2500), { ...whole, steps: 1000 })
trainSegmenter(model, table, scenePool(cfg, 79, 2500), { ...whole, steps: 1500, learningRate: 5e-4 })
// Makes masks too small, so that loop 2 has something to improve.
trainSegmenter(model, table, scenePool(cfg, 80, 800), { ...whole, steps: 100, background: 4 })
trainWords(loaded, table, pool, { steps: 900, images: 6, learningRate: 1.5e-3, terse: 0.65, terseColour: true })
// Each further stage starts from the stored weights, as fine-tuning of a real model does. First full captions, then captions without
// colour, so that loop 1 has something to improve.
const full = { steps: 600, images: 6, learningRate: 1e-3, terse: 0, terseColour: true }
const words = moreWords(loaded, 'words', scenePool(cfg, 81, 2500), full)
const terse = { steps: 120, images: 6, learningRate: 8e-4, terse: 0.85, terseColour: false }
exportSa2VA(moreWords(words, 'full', scenePool(cfg, 80, 800), terse), join(out, 'model'))
log.info(`${join(out, 'model')}: the start of the demo, seed ${seed}`)

function moreWords(from: Loaded, name: string, scenes: Pool, stage: Parameters<typeof trainWords>[3]): Loaded {
  const folder = join(out!, name)
  exportSa2VA(from, folder)
  const again = openSa2VA(folder, { dtype: 'float32' })
  trainWords(again, table, scenes, stage)
  return again
}
