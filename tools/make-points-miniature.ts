// Creates the two miniatures of the points demo: a SAM2 that answers clicks on scenes with confusable neighbours, and a Qwen2.5-VL that
// writes mediocre points; and the start for photographs. dev/results/points.md describes them.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { log, packageRoot } from '../src/core/index.ts'
import { openSam2 } from '../src/sam/index.ts'
import { setThreads } from '../src/tensor/index.ts'
import { makeDrawn } from './points-miniature/drawn.ts'
import { newPolicy, sceneCorpus, trainPolicy } from './points-miniature/policy.ts'
import { newSegmenter, segmenterConfig, trainBoxes, trainSegmenter } from './points-miniature/segmenter.ts'
import { writeModule, writePolicy } from './points-miniature/write.ts'

const seed = 1
const [what, out, data = 'emoji:1600:1:168', device = 'cpu'] = process.argv.slice(2)
const drawn = (folder: string) => makeDrawn(folder, seed, data, device)
const makers: Record<string, (out: string) => void | Promise<void>> = {
  sam2: makeSam2,
  boxes: makeBoxes,
  policy: makePolicy,
  drawn,
}
if (!out || !what || !Object.hasOwn(makers, what))
  throw new Error('usage: make-points-miniature sam2|boxes|policy|drawn OUT [DATA DEVICE]')
setThreads(1) // the number of threads decides the last bits
await makers[what]!(out)
log.info(`${out}: ${what}`)

/** First up to three negative clicks, then only one, as in the demo. */
function makeSam2(folder: string): void {
  const stage = { images: 8, pool: 4000 }
  const first = newSegmenter(seed)
  trainSegmenter(first, { ...stage, learningRate: 4e-4, steps: 600, seed: 301, several: 400 })
  writeSam2(first, join(folder, 'first'))
  const { model } = openSam2(join(folder, 'first'), { dtype: 'float32' })
  trainSegmenter(model, { ...stage, learningRate: 5e-4, steps: 350, seed: 302, several: 0 })
  writeSam2(model, join(folder, 'sam2'))
}

/** The shipped segmenter after a stage with boxes, for task reason: clicks alone take the whole cluster. */
function makeBoxes(folder: string): void {
  const shipped = join(packageRoot(), 'assets', 'points-miniature', 'sam2')
  const { model } = openSam2(shipped, { dtype: 'float32' })
  trainBoxes(model, { images: 12, pool: 1200, learningRate: 1e-3, steps: 500, seed: 303, several: 0 })
  writeSam2(model, join(folder, 'sam2-boxes'))
}

function writeSam2(model: ReturnType<typeof newSegmenter>, folder: string): void {
  writeModule(model, folder)
  const config = { model_type: 'sam2', grounding_encoder_config: segmenterConfig }
  writeFileSync(join(folder, 'config.json'), `${JSON.stringify(config, null, 2)}\n`)
}

/**
 * `untrained`: random weights, a control. `see`: trained on the right click, the middle of the neighbour; the second control.
 * `policy`: then trained on bad points, so that reinforcement learning has something to improve; the start of the demo.
 */
function makePolicy(folder: string): void {
  const loaded = newPolicy(join(folder, 'untrained'), seed, sceneCorpus())
  const see = { name: 'see', steps: 900, rows: 16, learningRate: 2e-3, seed: 401, pool: 3000, habits: 0 }
  trainPolicy(loaded, see)
  writePolicy(loaded, join(folder, 'see'))
  trainPolicy(loaded, { ...see, name: 'habits', steps: 80, learningRate: 1e-3, seed: 402, pool: 640, habits: 0.65 })
  writePolicy(loaded, join(folder, 'policy'))
}
