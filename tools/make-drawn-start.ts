// Creates the start for photographs: a miniature that has learned from drawings alone. dev/miniature.md describes the stages.
import { join } from 'node:path'
import { log } from '../src/core/index.ts'
import { exportSa2VA, openSa2VA } from '../src/models/index.ts'
import { setThreads } from '../src/tensor/index.ts'
import { drawings, drawnPool } from './miniature/drawn.ts'
import { pretrainSam, pretrainVision } from './miniature/encoders.ts'
import { makeMiniature, miniatureImage } from './miniature/make.ts'
import { startSegmenter, trainSegmenter } from './miniature/segmenter.ts'
import { on } from './miniature/stage.ts'
import { trainWords } from './miniature/words.ts'

const [out, given = '1'] = process.argv.slice(2)
if (!out) throw new Error('usage: make-drawn-start OUT [SEED]')
const seed = Number(given)
setThreads(1)
const untrained = join(out, 'untrained')
makeMiniature(untrained, seed, true)
const loaded = openSa2VA(untrained, { dtype: 'float32', ...on })
const pictures = await drawings(1500, 77 + seed, miniatureImage)
const pool = (part: number) => drawnPool(pictures, loaded.cfg, 100 * seed + part)

const { model } = loaded
const table = startSegmenter(model, seed, pool(77).kinds)
pretrainVision(model, pool(77), { steps: 1000, images: 48, learningRate: 2e-3 })
trainWords(loaded, table, pool(78), { steps: 1300, images: 16, learningRate: 1.2e-3 })
pretrainSam(model, pool(77), { steps: 800, images: 48, learningRate: 2e-3 })
const segmenter = { withEncoder: true, fullSteps: 600, background: 1 }
trainSegmenter(model, table, pool(78), { ...segmenter, steps: 2400, images: 48, learningRate: 2e-3 })
exportSa2VA(loaded, join(out, 'model'))
log.info(`${join(out, 'model')}: the start for photographs, seed ${seed}`)
