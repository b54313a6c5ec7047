// Creates the start for photographs: the miniature of generated scenes learns from drawings alone. dev/miniature.md describes the stages.
import { join } from 'node:path'
import { log, packageRoot } from '../src/core/index.ts'
import { exportSa2VA, type Loaded, openSa2VA } from '../src/models/index.ts'
import { noGrad, setThreads } from '../src/tensor/index.ts'
import { loadTokenizer } from '../src/text/index.ts'
import { drawings, drawnPool } from './miniature/drawn.ts'
import { pretrainVision } from './miniature/encoders.ts'
import { makeMiniature, miniatureImage } from './miniature/make.ts'
import { startSegmenter, trainSegmenter } from './miniature/segmenter.ts'
import { on } from './miniature/stage.ts'
import { trainWords } from './miniature/words.ts'

const [out] = process.argv.slice(2)
if (!out) throw new Error('usage: make-drawn-start OUT')
setThreads(1)
const open = (folder: string) => openSa2VA(folder, { dtype: 'float32', ...on })
const untrained = join(out, 'untrained')
makeMiniature(untrained, 1, true)
const loaded = open(untrained)
const pictures = await drawings(1500, 77, miniatureImage)
const pool = (seed: number) => drawnPool(pictures, loaded.cfg, seed)
const table = startSegmenter(loaded.model, 1, pool(77).kinds)
takeWeights(loaded, open(join(packageRoot(), 'assets', 'miniature-full')))

const { model } = loaded
pretrainVision(model, pool(77), { steps: 1550, images: 48, learningRate: 2e-3 })
trainWords(loaded, table, pool(78), { steps: 1300, images: 16, learningRate: 1e-3, terse: 0, terseColour: true })
// mostly captions without the place, so that loop 1 has something to find
trainWords(loaded, table, pool(79), { steps: 110, images: 16, learningRate: 8e-4, terse: 0.85, terseColour: true })
const whole = { images: 32, withEncoder: true }
trainSegmenter(model, table, pool(78), { ...whole, steps: 1600, learningRate: 1e-3, fullSteps: 400, background: 1 })
// masks become too small, so that loop 2 has something to improve
trainSegmenter(model, table, pool(79), { ...whole, steps: 96, learningRate: 4e-4, fullSteps: 1, background: 3 })
exportSa2VA(loaded, join(out, 'model'))
log.info(`${join(out, 'model')}: the start for photographs`)

/** Gives `to` the weights of `from`; vectors of tokens that only `to` has stay as they are. */
function takeWeights(to: Loaded, from: Loaded): void {
  const [own, other] = [loadTokenizer(to.dir), loadTokenizer(from.dir)]
  const ids = Array.from({ length: own.vocabSize }, (_, id) => other.encode(own.tokenText(id)))
  const source = from.model.parameters()
  noGrad(() => {
    for (const [name, t] of to.model.parameters()) {
      const values = source.get(name)!
      if (t.size(0) === values.size(0)) t.copy_(values)
      else
        ids.forEach((there, id) => {
          if (there.length === 1) t.narrow(0, id, 1).copy_(values.narrow(0, there[0]!, 1))
        })
    }
  })
}
