// The contents of a Sa2VA folder of a named size: config.json, names and shapes of all tensors, a tokenizer of the right length.
import type { JsonObject } from '../../src/core/index.ts'
import {
  familyOfConfig,
  internVit300m,
  internVLConfig,
  parseSa2VAConfig,
  parseSa2VAQwenConfig,
  qwen2Config,
  type ReleasedName,
  releasedConfig,
  releasedNames,
  Sa2VA,
  Sa2VAQwen,
} from '../../src/models/index.ts'
import { type Module, tensorAt } from '../../src/nn/index.ts'
import type { Sam2Config } from '../../src/sam/index.ts'
import { baseVocabulary } from '../../src/text/byte-level.ts'
import { addedToken, qwen2TokenizerJson, type TokenizerJson } from '../../src/text/tokenizer-files.ts'
import { sa2vaAddedTokens } from '../miniature/corpus.ts'
import tiny from './tiny.json' with { type: 'json' }

export type ShapeName = ReleasedName | 'tiny'
export const shapeNames: readonly ShapeName[] = [...releasedNames, 'tiny']

/** config.json of a size; `layers` shortens language model and vision tower, for a small machine. */
export function configOf(shape: ShapeName, dtype: string, layers?: number): JsonObject {
  const config = shape === 'tiny' ? tinyConfig(dtype) : releasedConfig(shape, dtype)
  if (layers !== undefined) cutLayers(config, layers)
  return config
}

function tinyConfig(dtype: string): JsonObject {
  const config = internVLConfig(
    'phi3_chat',
    { ...internVit300m, ...tiny.vision_config },
    qwen2Config([64, 2, 4, 2, 128], 512),
  )
  return { ...config, torch_dtype: dtype, grounding_encoder_config: tiny.grounding_encoder_config }
}

function cutLayers(config: JsonObject, layers: number): void {
  for (const key of ['vision_config', 'llm_config', 'text_config']) {
    const part = config[key] as JsonObject | undefined
    if (!part) continue
    for (const count of ['num_hidden_layers', 'depth']) if (part[count]) part[count] = layers
    for (const list of ['deepstack_visual_indexes', 'fullatt_block_indexes'])
      if (part[list]) part[list] = (part[list] as number[]).map((_, i) => i).filter((i) => i < layers)
  }
}

/** The config of the language model; its key depends on the family. */
export function languageOf(config: JsonObject): { vocab_size: number } {
  return (config.llm_config ?? config.text_config) as { vocab_size: number }
}

/** Every tensor of the folder, the video modules included. */
export function tensorShapes(config: JsonObject): Map<string, readonly number[]> {
  const { model, sam } = emptyModel(config)
  const out = new Map(model.slots().map((slot) => [slot.name, tensorAt(slot).shape]))
  for (const t of model.parameters().values()) t.dispose()
  const real = config.grounding_encoder_config === undefined
  for (const [name, shape] of videoShapes(sam.d_model, sam.mem_dim ?? 64, real ? 4 : 1))
    out.set(`grounding_encoder.sam2_model.${name}`, shape)
  return out
}

function emptyModel(config: JsonObject): { model: Module; sam: Sam2Config } {
  if (familyOfConfig(config) === 'sa2va-internvl') {
    const cfg = parseSa2VAConfig(config)
    return { model: new Sa2VA(cfg), sam: cfg.sam }
  }
  const cfg = parseSa2VAQwenConfig(config)
  return { model: new Sa2VAQwen(cfg), sam: cfg.sam }
}

/** d channels, m memory channels; the released models have 4 layers of memory attention. */
function videoShapes(d: number, m: number, layers: number): [string, number[]][] {
  const wide = layers > 1 ? 2048 : 2 * d
  const layer = (name: string, ...weight: number[]): [string, number[]][] => [
    [`${name}.weight`, weight],
    [`${name}.bias`, weight.slice(0, 1)],
  ]
  const conv = (name: string, out: number, input: number, k: number) => layer(name, out, input, k, k)
  const attention = Array.from({ length: layers }, (_, i) => `memory_attention.layers.${i}`).flatMap((p) => [
    ...['q', 'k', 'v', 'out'].flatMap((n) => layer(`${p}.self_attn.${n}_proj`, d, d)),
    ...['q', 'out'].flatMap((n) => layer(`${p}.cross_attn_image.${n}_proj`, d, d)),
    ...['k', 'v'].flatMap((n) => layer(`${p}.cross_attn_image.${n}_proj`, d, m)),
    ...layer(`${p}.linear1`, wide, d),
    ...layer(`${p}.linear2`, d, wide),
    ...[1, 2, 3].flatMap((n) => layer(`${p}.norm${n}`, d)),
  ])
  const fuser = Array.from({ length: layers > 1 ? 2 : 1 }, (_, i) => `memory_encoder.fuser.layers.${i}`).flatMap(
    (p) => [
      ...conv(`${p}.dwconv`, d, 1, 7),
      ...layer(`${p}.norm`, d),
      ...layer(`${p}.pwconv1`, 4 * d, d),
      ...layer(`${p}.pwconv2`, d, 4 * d),
      [`${p}.g_weight`, [d]] as [string, number[]],
    ],
  )
  const down = [4, 16, 64, 256].flatMap((n, i) => [
    ...conv(`memory_encoder.mask_downsampler.encoder.${3 * i}`, n, n === 4 ? 1 : n / 4, 3),
    ...layer(`memory_encoder.mask_downsampler.encoder.${3 * i + 1}`, n),
  ])
  return [
    ...attention,
    ...layer('memory_attention.norm', d),
    ...fuser,
    ...down,
    ...conv('memory_encoder.mask_downsampler.encoder.12', d, 256, 1),
    ...conv('memory_encoder.pix_feat_proj', d, d, 1),
    ...conv('memory_encoder.out_proj', m, d, 1),
    ...[0, 1, 2].flatMap((i) => layer(`obj_ptr_proj.layers.${i}`, d, d)),
    ...conv('mask_downsample', 1, 1, 4),
    ['maskmem_tpos_enc', [7, 1, 1, m]],
    ['no_mem_pos_enc', [1, 1, d]],
    ['no_obj_ptr', [1, d]],
  ]
}

/** In the order of the released vocabularies, from 151643 on. */
const qwenTokens = [
  ...['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|object_ref_start|>', '<|object_ref_end|>', '<|box_start|>'],
  ...['<|box_end|>', '<|quad_start|>', '<|quad_end|>', '<|vision_start|>', '<|vision_end|>', '<|vision_pad|>'],
  ...['<|image_pad|>', '<|video_pad|>', '<tool_call>', '</tool_call>', '<|fim_prefix|>', '<|fim_middle|>'],
  ...['<|fim_suffix|>', '<|fim_pad|>', '<|repo_name|>', '<|file_sep|>'],
]
const qwen3Tokens = ['<tool_response>', '</tool_response>', '<think>', '</think>']
const groundingTokens = ['[SEG]', '<p>', '</p>', '<vp>', '</vp>']

/** The added tokens of a family, at the end of its vocabulary. */
export function addedTokensOf(config: JsonObject): readonly string[] {
  const family = familyOfConfig(config)
  if (family === 'sa2va-internvl') return sa2vaAddedTokens
  return [...qwenTokens, ...(family === 'sa2va-qwen3_vl' ? qwen3Tokens : []), ...groundingTokens]
}

/** A vocabulary of bytes, filler words and, at the end, the added tokens, as in the released ones. No merges. */
export function tokenizerOf(size: number, last: readonly string[] = sa2vaAddedTokens): TokenizerJson {
  const filler = Array.from({ length: size - 256 - last.length }, (_, i) => `Ġw${i}`)
  const vocab = Object.fromEntries([...baseVocabulary(), ...filler].map((token, id) => [token, id]))
  const added = last.map((content, i) => addedToken(size - last.length + i, content))
  return qwen2TokenizerJson(vocab, [], added)
}
