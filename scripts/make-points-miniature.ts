// The two miniatures of the points demo from nothing: a SAM2 that answers clicks on scenes with confusable neighbours, and a
// Qwen2.5-VL that writes points, mediocre ones. docs/points.md has the recipe.
import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { log } from '../src/core/index.ts'
import { type LoadedQwenVL, openQwenVL, openSam2 } from '../src/models/index.ts'
import { setThreads } from '../src/tensor/index.ts'
import { newPolicy, trainPolicy } from './lib/points-miniature/policy.ts'
import { newSegmenter, segmenterConfig, trainSegmenter } from './lib/points-miniature/segmenter.ts'
import { writeModule } from './lib/points-miniature/write.ts'

const [what, out, seedText = '1'] = process.argv.slice(2)
if (!out || !what) throw new Error('usage: make-points-miniature sam2|sam2-again|policy|habits OUT [SEED]')
const seed = Number(seedText)
setThreads(1) // the number of threads decides the last bits

if (what === 'sam2') {
  const model = newSegmenter(seed)
  const stage = { images: 8, learningRate: 4e-4, pool: 4000 }
  trainSegmenter(model, { ...stage, steps: 600, seed: 301, several: 400 })
  writeModule(model, join(out, 'first'))
  saveConfig(join(out, 'first'))
}
if (what === 'sam2-again') {
  const { model } = openSam2(join(out, 'first'), { dtype: 'float32' })
  const steps = Number(process.env['STEPS'] ?? 350)
  trainSegmenter(model, { images: 8, learningRate: 5e-4, pool: 4000, steps, seed: 302, several: 0 })
  writeModule(model, join(out, 'model'))
  saveConfig(join(out, 'model'))
}

function saveConfig(folder: string): void {
  const config = { model_type: 'sam2', grounding_encoder_config: segmenterConfig }
  writeFileSync(join(folder, 'config.json'), `${JSON.stringify(config, null, 2)}\n`)
}

if (what === 'policy') {
  const loaded = newPolicy(join(out, 'untrained'), seed)
  const see = { rows: 16, seed: 401, pool: 12000, habits: 0 }
  const steps = Number(process.env['STEPS'] ?? 900)
  trainPolicy(loaded, { ...see, name: 'see', steps, learningRate: 3e-3 })
  saveAs(loaded, 'see')
}
if (what === 'habits') {
  const loaded = openQwenVL(join(out, 'see'), { dtype: 'float32' })
  const mixed = { rows: 16, seed: 402, pool: 4000 }
  trainPolicy(loaded, {
    ...mixed,
    name: 'habits',
    steps: Number(process.env['STEPS'] ?? 200),
    learningRate: 1e-3,
    habits: 0.7,
  })
  saveAs(loaded, 'model')
}

function saveAs(loaded: LoadedQwenVL, name: string): void {
  const folder = join(out!, name)
  writeModule(loaded.model, folder)
  for (const file of ['config.json', 'tokenizer.json', 'preprocessor_config.json'])
    copyFileSync(join(loaded.dir, file), join(folder, file))
}
log.info(`${out}: ${what}, seed ${seed}`)
