// The untrained miniature: every code path of Sa2VA-4B at about a millionth of its cost.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tensorSource, writeWeights } from '../../src/checkpoint/index.ts'
import { atomicWriteJson } from '../../src/core/index.ts'
import { parseSa2VAConfig, Sa2VA } from '../../src/models/index.ts'
import { initRandom } from '../../src/nn/index.ts'
import { trainSceneTokenizer } from './corpus.ts'

/** Side of a scene image; one tile, 8x8 image tokens. */
export const miniatureImage = 112

export function miniatureConfig(vocabulary: number): Record<string, unknown> {
  return {
    model_type: 'sa2va_chat',
    architectures: ['Sa2VAChatModel'],
    template: 'phi3_chat',
    select_layer: -1,
    ps_version: 'v2',
    downsample_ratio: 0.5,
    force_image_size: miniatureImage,
    dynamic_image_size: true,
    use_thumbnail: true,
    min_dynamic_patch: 1,
    max_dynamic_patch: 4,
    use_backbone_lora: 0,
    use_llm_lora: 0,
    tie_word_embeddings: false,
    torch_dtype: 'bfloat16',
    vision_config: {
      architectures: ['InternVisionModel'],
      hidden_size: 64,
      num_attention_heads: 4,
      intermediate_size: 128,
      num_hidden_layers: 3,
      image_size: miniatureImage,
      patch_size: 7,
      qkv_bias: true,
      qk_normalization: false,
      norm_type: 'layer_norm',
      layer_norm_eps: 1e-6,
      hidden_act: 'gelu',
      drop_path_rate: 0,
    },
    llm_config: {
      architectures: ['Qwen2ForCausalLM'],
      hidden_size: 128,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      intermediate_size: 256,
      vocab_size: vocabulary,
      rms_norm_eps: 1e-6,
      rope_theta: 10000,
      max_position_embeddings: 2048,
      hidden_act: 'silu',
      tie_word_embeddings: false,
    },
    grounding_encoder_config: {
      image_size: 128,
      embed_dim: 16,
      num_heads: 1,
      stages: [1, 1, 1, 1],
      window_spec: [8, 4, 8, 4],
      global_att_blocks: [2],
      window_pos_embed_bkg_spatial_size: [4, 4],
      d_model: 64,
      decoder_heads: 1,
      decoder_mlp_dim: 128,
      iou_head_hidden_dim: 64,
    },
  }
}

/** A folder with config, tokenizer and freshly drawn weights; SFT starts here. */
export function makeMiniature(dir: string, seed: number): void {
  mkdirSync(dir, { recursive: true })
  const tokenizer = trainSceneTokenizer({ seed: 0, scenes: 4000, maxMerges: 400 })
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
