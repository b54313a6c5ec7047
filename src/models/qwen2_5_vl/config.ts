import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type JsonObject, Mismatch, readJsonObject } from '../../core/index.ts'
import { type LlmConfig, readLlmConfig } from '../../llm/index.ts'

export interface QwenVisionConfig {
  depth: number
  hidden_size: number
  num_heads: number
  intermediate_size: number
  out_hidden_size: number
  patch_size: number
  temporal_patch_size: number
  spatial_merge_size: number
  /** In pixels. */
  window_size: number
  fullatt_block_indexes: readonly number[]
  in_channels: number
}

/** config.json of a Qwen2.5-VL folder. */
export interface QwenVLConfig {
  vision: QwenVisionConfig
  llm: LlmConfig
  image_token_id: number
  vision_start_token_id: number
  vision_end_token_id: number
  torch_dtype: string
  raw: Record<string, unknown>
}

export function readQwenVLConfig(dir: string): QwenVLConfig {
  const where = join(dir, 'config.json')
  if (!existsSync(where))
    throw new Mismatch({ where, expected: 'the config.json of a Qwen2.5-VL checkpoint', got: 'no such file' })
  return parseQwenVLConfig(readJsonObject(where), where)
}

/** Keys of the language model are at the top of released files, in `text_config` of newer ones. */
export function parseQwenVLConfig(raw: JsonObject, where = 'config.json'): QwenVLConfig {
  if (raw.model_type !== 'qwen2_5_vl')
    throw new Mismatch({ where, field: 'model_type', expected: 'qwen2_5_vl', got: raw.model_type ?? 'nothing' })
  const nested = raw.text_config as JsonObject | undefined
  const text = { ...raw, ...nested, architectures: ['Qwen2ForCausalLM'] }
  const llm = readLlmConfig(text, where, nested ? 'text_config.' : '')
  checkSections(llm, where)
  const vision = readQwenVision((raw.vision_config ?? {}) as JsonObject, where)
  if (vision.out_hidden_size !== llm.hidden_size) {
    throw new Mismatch({
      where,
      field: 'vision_config.out_hidden_size',
      expected: `the hidden size ${llm.hidden_size}`,
      got: vision.out_hidden_size,
    })
  }
  const id = (key: string) => wholeNumber(raw, key, where, '')
  return {
    vision,
    llm,
    image_token_id: id('image_token_id'),
    vision_start_token_id: id('vision_start_token_id'),
    vision_end_token_id: id('vision_end_token_id'),
    torch_dtype: String(raw.torch_dtype ?? raw.dtype ?? 'bfloat16'),
    raw,
  }
}

export function checkSections(llm: LlmConfig, where: string): void {
  const { mrope_section: sections, head_dim: D } = llm
  if (sections.length === 3 && sections.reduce((a, b) => a + b, 0) === D / 2) return
  throw new Mismatch({
    where,
    field: 'rope_scaling.mrope_section',
    expected: `three numbers whose sum is half the head, ${D / 2}`,
    got: sections.length > 0 ? `[${sections}]` : 'nothing',
  })
}

export function wholeNumber(raw: JsonObject, key: string, where: string, part: string): number {
  const value = raw[key]
  const most = key === 'depth' ? 1024 : key.endsWith('_id') ? 16_777_216 : 1_048_576 // more is a damaged file
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most) return value
  throw new Mismatch({
    where,
    field: `${part}${key}`,
    expected: (value as number) > most ? `at most ${most}` : 'a whole number',
    got: value ?? 'nothing',
  })
}

/** Numbers of vision layers; the usual ones may name more than a small model has. */
export function layerList(raw: JsonObject, key: string, usual: readonly number[], where: string): readonly number[] {
  const value = raw[key]
  if (value === undefined) return usual
  const depth = raw.depth as number
  if (Array.isArray(value) && value.every((i) => Number.isInteger(i) && i >= 0 && i < depth)) return value as number[]
  throw new Mismatch({ where, field: `vision_config.${key}`, expected: `a list of layers below ${depth}`, got: value })
}

/** Sizes that every vision tower of the family has. The classes' own defaults are those of no released model, so there are none here. */
export function readVisionSizes(raw: JsonObject, where: string, usualPatch: number) {
  const size = (key: string) => wholeNumber(raw, key, where, 'vision_config.')
  const or = (key: string, usual: number) => (raw[key] === undefined ? usual : size(key))
  const sizes = {
    depth: size('depth'),
    hidden_size: size('hidden_size'),
    num_heads: size('num_heads'),
    intermediate_size: size('intermediate_size'),
    out_hidden_size: size('out_hidden_size'),
    patch_size: or('patch_size', usualPatch),
    temporal_patch_size: or('temporal_patch_size', 2),
    spatial_merge_size: or('spatial_merge_size', 2),
  }
  return { sizes, or }
}

export function readQwenVision(raw: JsonObject, where: string): QwenVisionConfig {
  const { sizes, or } = readVisionSizes(raw, where, 14)
  const cfg = {
    ...sizes,
    window_size: or('window_size', 112),
    in_channels: or('in_channels', or('in_chans', 3)),
    fullatt_block_indexes: layerList(raw, 'fullatt_block_indexes', [7, 15, 23, 31], where),
  }
  if (cfg.hidden_size % (4 * cfg.num_heads) !== 0) {
    throw new Mismatch({
      where,
      field: 'vision_config.num_heads',
      expected: `heads of a size that 4 divides, of ${cfg.hidden_size}`,
      got: cfg.num_heads,
    })
  }
  return cfg
}
