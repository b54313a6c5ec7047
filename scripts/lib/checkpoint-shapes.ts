// What a Sa2VA folder of a named size consists of: config.json, names and shapes of all tensors, a tokenizer of the right length.
import { sa2vaAddedTokens } from '../../src/data/scenes/index.ts'
import { parseSa2VAConfig, Sa2VA } from '../../src/models/index.ts'
import { tensorAt } from '../../src/nn/index.ts'

type Json = Record<string, unknown>
export type ShapeName = '4b' | '1b' | 'tiny'
export const shapeNames: readonly ShapeName[] = ['4b', '1b', 'tiny']

const vit300m = {
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
const tinyVit = {
  ...vit300m,
  hidden_size: 32,
  num_attention_heads: 4,
  intermediate_size: 64,
  num_hidden_layers: 2,
  image_size: 112,
}

function qwen2(hidden: number, layers: number, heads: number, intermediate: number, vocabulary: number): Json {
  return {
    architectures: ['Qwen2ForCausalLM'],
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: 2,
    intermediate_size: intermediate,
    vocab_size: vocabulary,
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    max_position_embeddings: 32768,
    hidden_act: 'silu',
    tie_word_embeddings: false,
  }
}

const tinySam = {
  image_size: 128,
  embed_dim: 16,
  num_heads: 1,
  stages: [1, 2, 3, 1],
  window_spec: [8, 4, 4, 2],
  global_att_blocks: [4],
  window_pos_embed_bkg_spatial_size: [7, 7],
  d_model: 32,
  mem_dim: 8,
}

const parts: Record<ShapeName, { template: string; vision: Json; llm: Json; sam?: Json }> = {
  '4b': { template: 'phi3_chat', vision: vit300m, llm: qwen2(2048, 36, 16, 11008, 151679) },
  '1b': { template: 'qwen_chat', vision: vit300m, llm: qwen2(896, 24, 14, 4864, 151679) },
  tiny: { template: 'phi3_chat', vision: tinyVit, llm: qwen2(64, 2, 4, 128, 512), sam: tinySam },
}

export function configOf(shape: ShapeName, dtype: string): Json {
  const { template, vision, llm, sam } = parts[shape]
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
    torch_dtype: dtype,
    vision_config: vision,
    llm_config: llm,
    ...(sam ? { grounding_encoder_config: sam } : {}),
  }
}

/** Every tensor of the folder, the video modules included. */
export function tensorShapes(config: Json): Map<string, readonly number[]> {
  const cfg = parseSa2VAConfig(config)
  const model = new Sa2VA(cfg)
  const out = new Map(model.slots().map((slot) => [slot.name, tensorAt(slot).shape]))
  for (const t of model.parameters().values()) t.dispose()
  const real = config.grounding_encoder_config === undefined
  for (const [name, shape] of videoShapes(cfg.sam.d_model, cfg.sam.mem_dim ?? 64, real ? 4 : 1))
    out.set(`grounding_encoder.sam2_model.${name}`, shape)
  return out
}

/** d channels, m of the memory; the released models have 4 layers of memory attention. */
function videoShapes(d: number, m: number, layers: number): [string, number[]][] {
  const wide = layers > 1 ? 2048 : 2 * d
  const linear = (name: string, out: number, input: number): [string, number[]][] => [
    [`${name}.weight`, [out, input]],
    [`${name}.bias`, [out]],
  ]
  const conv = (name: string, out: number, input: number, k: number): [string, number[]][] => [
    [`${name}.weight`, [out, input, k, k]],
    [`${name}.bias`, [out]],
  ]
  const norm = (name: string, n: number): [string, number[]][] => [
    [`${name}.weight`, [n]],
    [`${name}.bias`, [n]],
  ]
  const attention = Array.from({ length: layers }, (_, i) => `memory_attention.layers.${i}`).flatMap((p) => [
    ...['q', 'k', 'v', 'out'].flatMap((n) => linear(`${p}.self_attn.${n}_proj`, d, d)),
    ...['q', 'out'].flatMap((n) => linear(`${p}.cross_attn_image.${n}_proj`, d, d)),
    ...['k', 'v'].flatMap((n) => linear(`${p}.cross_attn_image.${n}_proj`, d, m)),
    ...linear(`${p}.linear1`, wide, d),
    ...linear(`${p}.linear2`, d, wide),
    ...[1, 2, 3].flatMap((n) => norm(`${p}.norm${n}`, d)),
  ])
  const fuser = Array.from({ length: layers > 1 ? 2 : 1 }, (_, i) => `memory_encoder.fuser.layers.${i}`).flatMap(
    (p) => [
      ...conv(`${p}.dwconv`, d, 1, 7),
      ...norm(`${p}.norm`, d),
      ...linear(`${p}.pwconv1`, 4 * d, d),
      ...linear(`${p}.pwconv2`, d, 4 * d),
      [`${p}.g_weight`, [d]] as [string, number[]],
    ],
  )
  const down = [4, 16, 64, 256].flatMap((n, i) => [
    ...conv(`memory_encoder.mask_downsampler.encoder.${3 * i}`, n, n === 4 ? 1 : n / 4, 3),
    ...norm(`memory_encoder.mask_downsampler.encoder.${3 * i + 1}`, n),
  ])
  return [
    ...attention,
    ...norm('memory_attention.norm', d),
    ...fuser,
    ...down,
    ...conv('memory_encoder.mask_downsampler.encoder.12', d, 256, 1),
    ...conv('memory_encoder.pix_feat_proj', d, d, 1),
    ...conv('memory_encoder.out_proj', m, d, 1),
    ...[0, 1, 2].flatMap((i) => linear(`obj_ptr_proj.layers.${i}`, d, d)),
    ...conv('mask_downsample', 1, 1, 4),
    ['maskmem_tpos_enc', [7, 1, 1, m]],
    ['no_mem_pos_enc', [1, 1, d]],
    ['no_obj_ptr', [1, d]],
  ]
}

const pattern =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/** Bytes, filler words up to the size, then the added tokens at the end, as in the released vocabularies. No merges. */
export function tokenizerOf(size: number): Json {
  const printable = (b: number) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255)
  const bytes = Array.from({ length: 256 }, (_, b) => b)
  const alphabet = [
    ...bytes.filter(printable).map((b) => String.fromCodePoint(b)),
    ...Array.from({ length: 68 }, (_, i) => String.fromCodePoint(256 + i)),
  ]
  const last = sa2vaAddedTokens
  const filler = Array.from({ length: size - 256 - last.length }, (_, i) => `Ġw${i}`)
  const vocab = Object.fromEntries([...alphabet, ...filler].map((token, id) => [token, id]))
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true }
  const split = { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false }
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false }
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: last.map((content, i) => ({ id: size - last.length + i, content, ...flags })),
    normalizer: null,
    pre_tokenizer: { type: 'Sequence', pretokenizers: [split, byteLevel] },
    post_processor: null,
    decoder: { ...byteLevel, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges: [],
    },
  }
}
