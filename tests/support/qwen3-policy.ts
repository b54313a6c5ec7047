// For tests: a random Qwen3-VL of the size of the points miniature, with its tokenizer, in the layout of a released folder.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tensorSource, writeWeights } from '../../src/checkpoint/index.ts'
import { parseQwenVLConfig, QwenVL } from '../../src/models/index.ts'
import { initRandom } from '../../src/nn/index.ts'

const policy = fileURLToPath(new URL('../../assets/points-miniature/policy', import.meta.url))

const released = (name: string) =>
  name.replace(/^model\./, 'model.language_model.').replace(/^visual\./, 'model.visual.')

export function makeQwen3Policy(dir: string): string {
  mkdirSync(dir, { recursive: true })
  const { vision_config: _, rope_scaling: __, ...flat } = JSON.parse(readFileSync(join(policy, 'config.json'), 'utf8'))
  const ids = Object.fromEntries(Object.entries(flat).filter(([key]) => key.endsWith('_token_id')))
  const rope = { mrope_interleaved: true, mrope_section: [4, 2, 2], rope_type: 'default' }
  const config = {
    architectures: ['Qwen3VLForConditionalGeneration'],
    model_type: 'qwen3_vl',
    ...ids,
    tie_word_embeddings: true,
    text_config: { ...flat, head_dim: 16, model_type: 'qwen3_vl_text', dtype: 'float32', rope_scaling: rope },
    vision_config: {
      ...{ model_type: 'qwen3_vl', depth: 2, hidden_size: 48, num_heads: 3, intermediate_size: 96 },
      ...{ out_hidden_size: 64, patch_size: 16, num_position_embeddings: 16, deepstack_visual_indexes: [0] },
    },
  }
  const half = [0.5, 0.5, 0.5]
  const size = { shortest_edge: 1024, longest_edge: 65536 }
  const processor = { size, patch_size: 16, merge_size: 2, temporal_patch_size: 2, image_mean: half, image_std: half }
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify(processor))
  copyFileSync(join(policy, 'tokenizer.json'), join(dir, 'tokenizer.json'))
  const model = new QwenVL(parseQwenVLConfig(config))
  initRandom(model, { seed: 1 })
  const weights = [...model.parameters()]
  writeWeights(
    dir,
    weights.map(([name, t]) => tensorSource(released(name), t)),
  )
  for (const [, t] of weights) t.dispose()
  return dir
}
