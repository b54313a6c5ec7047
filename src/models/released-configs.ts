// config.json of the released sizes, for plans and substitutes without a download. What a family's reader fills in itself is left out.
import type { JsonObject } from '../core/index.ts'

export const internVit300m = {
  architectures: ['InternVisionModel'],
  hidden_size: 1024,
  num_attention_heads: 16,
  intermediate_size: 4096,
  num_hidden_layers: 24,
  image_size: 448,
  patch_size: 14,
  qkv_bias: true,
  qk_normalization: false,
  norm_type: 'layer_norm',
  layer_norm_eps: 1e-6,
  hidden_act: 'gelu',
}

const internVit6b = {
  ...internVit300m,
  hidden_size: 3200,
  num_attention_heads: 25,
  intermediate_size: 12800,
  num_hidden_layers: 45,
  qkv_bias: false,
  qk_normalization: true,
  norm_type: 'rms_norm',
}

type Size = readonly [hidden: number, layers: number, heads: number, groups: number, intermediate: number]

function language([hidden, layers, heads, groups, intermediate]: Size, vocabulary: number): JsonObject {
  return {
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: groups,
    intermediate_size: intermediate,
    vocab_size: vocabulary,
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    max_position_embeddings: 32768,
    hidden_act: 'silu',
    tie_word_embeddings: false,
  }
}

export function qwen2Config(size: Size, vocabulary = 151679): JsonObject {
  return { architectures: ['Qwen2ForCausalLM'], ...language(size, vocabulary) }
}

function internlm2(size: Size): JsonObject {
  return { architectures: ['InternLM2ForCausalLM'], ...language(size, 92558), rms_norm_eps: 1e-5, bias: false }
}

/** A Sa2VA on InternVL with the given parts. */
export function internVLConfig(template: string, vision: JsonObject, llm: JsonObject): JsonObject {
  return {
    architectures: ['Sa2VAChatModel'],
    model_type: 'sa2va_chat',
    template,
    select_layer: -1,
    ps_version: 'v2',
    downsample_ratio: 0.5,
    force_image_size: vision.image_size,
    dynamic_image_size: true,
    use_thumbnail: true,
    min_dynamic_patch: 1,
    max_dynamic_patch: 12,
    use_backbone_lora: 0,
    use_llm_lora: 0,
    tie_word_embeddings: false,
    vision_config: vision,
    llm_config: llm,
  }
}

const ids = { vision_start_token_id: 151652, vision_end_token_id: 151653, image_token_id: 151655 }

/** A Sa2VA on Qwen-VL with the given parts. */
function onQwen(text: JsonObject, vision: JsonObject): JsonObject {
  return {
    architectures: ['Sa2VAChatModelQwen'],
    model_type: 'sa2va_chat',
    ...ids,
    tie_word_embeddings: false,
    text_config: text,
    vision_config: { ...vision, num_heads: 16, out_hidden_size: text.hidden_size },
  }
}

function onQwen2_5(size: Size): JsonObject {
  const text = {
    ...language(size, 151670),
    model_type: 'qwen2_5_vl_text',
    max_position_embeddings: 128000,
    rope_scaling: { type: 'default', rope_type: 'default', mrope_section: [16, 24, 24] },
  }
  return onQwen(text, {
    model_type: 'qwen2_5_vl',
    depth: 32,
    hidden_size: 1280,
    intermediate_size: 3420,
    patch_size: 14,
    window_size: 112,
    fullatt_block_indexes: [7, 15, 23, 31],
    hidden_act: 'silu',
  })
}

function onQwen3(size: Size): JsonObject {
  const text = {
    ...language(size, 151674),
    model_type: 'qwen3_vl_text',
    head_dim: 128,
    rope_theta: 5e6,
    max_position_embeddings: 262144,
    rope_scaling: { rope_type: 'default', mrope_interleaved: true, mrope_section: [24, 20, 20] },
  }
  return onQwen(text, {
    model_type: 'qwen3_vl',
    depth: 24,
    hidden_size: 1024,
    intermediate_size: 4096,
    patch_size: 16,
    num_position_embeddings: 2304,
    deepstack_visual_indexes: [5, 11, 17],
    hidden_act: 'gelu_pytorch_tanh',
  })
}

const configs = {
  '1b': internVLConfig('qwen_chat', internVit300m, qwen2Config([896, 24, 14, 2, 4864])),
  '4b': internVLConfig('phi3_chat', internVit300m, qwen2Config([2048, 36, 16, 2, 11008])),
  '8b': internVLConfig('internlm2_chat', internVit300m, internlm2([4096, 32, 32, 8, 14336])),
  '26b': internVLConfig('internlm2_chat', internVit6b, internlm2([6144, 48, 48, 8, 16384])),
  'internvl3-2b': internVLConfig('qwen_chat', internVit300m, qwen2Config([1536, 28, 12, 2, 8960])),
  'internvl3-8b': internVLConfig('qwen_chat', internVit300m, qwen2Config([3584, 28, 28, 4, 18944])),
  'internvl3-14b': internVLConfig('qwen_chat', internVit300m, qwen2Config([5120, 48, 40, 8, 13824])),
  'qwen2_5-vl-3b': onQwen2_5([2048, 36, 16, 2, 11008]),
  'qwen2_5-vl-7b': onQwen2_5([3584, 28, 28, 4, 18944]),
  'qwen3-vl-2b': onQwen3([2048, 28, 16, 8, 6144]),
  'qwen3-vl-4b': onQwen3([2560, 36, 32, 8, 9728]),
}
export type ReleasedName = keyof typeof configs
export const releasedNames = Object.keys(configs) as ReleasedName[]

/** A copy of the released config.json of a size, as far as it is read. */
export function releasedConfig(name: ReleasedName, dtype = 'bfloat16'): JsonObject {
  return { ...structuredClone(configs[name]), torch_dtype: dtype }
}
