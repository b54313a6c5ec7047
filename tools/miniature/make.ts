// The untrained miniature: every code path of Sa2VA-4B at about a millionth of its cost.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tensorSource, writeWeights } from '../../src/checkpoint/index.ts'
import { atomicWriteJson } from '../../src/core/index.ts'
import { parseSa2VAConfig, Sa2VA } from '../../src/models/index.ts'
import { initRandom } from '../../src/nn/index.ts'
import shape from './config.json' with { type: 'json' }
import { trainSceneTokenizer } from './corpus.ts'

/** Side of a scene image; one tile, 8x8 image tokens. */
export const miniatureImage = shape.force_image_size

export function miniatureConfig(vocabulary: number): Record<string, unknown> {
  return { ...shape, llm_config: { ...shape.llm_config, vocab_size: vocabulary } }
}

/** A folder with config, tokenizer and freshly drawn weights; SFT starts here. */
export function makeMiniature(dir: string, seed: number, composed = false): void {
  mkdirSync(dir, { recursive: true })
  const tokenizer = trainSceneTokenizer({ seed: 0, composed, scenes: 4000, maxMerges: 400 })
  const vocabulary = Object.keys(tokenizer.model.vocab).length + tokenizer.added_tokens.length
  const config = miniatureConfig(vocabulary)
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(tokenizer))
  atomicWriteJson(join(dir, 'config.json'), config)
  const model = new Sa2VA(parseSa2VAConfig(config))
  initRandom(model, { seed, dtype: 'bfloat16' })
  writeWeights(
    dir,
    [...model.parameters()].map(([name, t]) => tensorSource(name, t)),
  )
  for (const t of model.parameters().values()) t.dispose()
}
