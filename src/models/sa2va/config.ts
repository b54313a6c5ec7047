import { type JsonObject, Mismatch } from '../../core/index.ts'
import { type LlmConfig, oneOf, readLlmConfig, switchAt } from '../../llm/index.ts'
import { type Sam2Config, sam2Config } from '../../sam/index.ts'
import { readVisionConfig, type VisionConfig } from '../internvit/model.ts'
import { objectAt, readConfigFile } from '../qwen_vl/config.ts'

/** config.json of a Sa2VA folder, with the defaults of the reference filled in. */
export interface Sa2VAConfig {
  template: string
  select_layer: number
  ps_version: 'v1' | 'v2'
  downsample_ratio: number
  image_size: number
  min_dynamic_patch: number
  max_dynamic_patch: number
  use_thumbnail: boolean
  torch_dtype: string
  vision: VisionConfig
  llm: LlmConfig
  sam: Sam2Config
  /** As read, for a merged export. */
  raw: JsonObject
}

/** Tiles of one image, and the side of a tile in pixels; more is a damaged file. */
const bounds = [
  ['min_dynamic_patch', 256],
  ['max_dynamic_patch', 256],
  ['force_image_size', 8192],
] as const

function whole(raw: JsonObject, key: string, most: number, where: string): void {
  const value = raw[key] ?? 1
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most) return
  throw new Mismatch({ where, field: key, expected: `a whole number from 1 to ${most}`, got: value })
}

export function readSa2VAConfig(dir: string): Sa2VAConfig {
  return parseSa2VAConfig(...readConfigFile(dir, 'Sa2VA'))
}

export function parseSa2VAConfig(raw: JsonObject, where = 'config.json'): Sa2VAConfig {
  const architecture = (raw.architectures as unknown[] | undefined)?.[0]
  if (architecture !== 'Sa2VAChatModel' && (architecture !== undefined || !raw.llm_config)) {
    const [expected, got] = ['Sa2VAChatModel, Sa2VA on InternVL', architecture ?? 'nothing']
    const hint = 'model_type is sa2va_chat for every Sa2VA, so architectures[0] tells the variants apart'
    throw new Mismatch({ where, field: 'architectures[0]', expected, got, hint })
  }
  const site = { where, part: '' }
  const vision = readVisionConfig(objectAt(raw, 'vision_config', where), where)
  for (const [key, most] of bounds) whole(raw, key, most, where)
  return {
    template: String(raw.template ?? 'phi3_chat').replaceAll('-', '_'),
    select_layer: selectLayer(raw, vision.num_hidden_layers, where),
    ps_version: oneOf(raw, 'ps_version', ['v1', 'v2'], 'v1', site),
    downsample_ratio: shuffleRatio(raw, where),
    image_size: (raw.force_image_size as number | null | undefined) ?? vision.image_size,
    min_dynamic_patch: (raw.min_dynamic_patch as number | undefined) ?? 1,
    max_dynamic_patch: (raw.max_dynamic_patch as number | undefined) ?? 12,
    use_thumbnail: switchAt(raw, 'use_thumbnail', true, site),
    torch_dtype: String(raw.torch_dtype ?? raw.dtype ?? 'bfloat16'),
    vision,
    llm: readLlmConfig(objectAt(raw, 'llm_config', where), where),
    sam: sam2Config(raw.grounding_encoder_config ?? {}, `${where}: grounding_encoder_config`),
    raw,
  }
}

/** As hidden_states of the reference are counted: 0 the embeddings, -1 what leaves the last layer. */
function selectLayer(raw: JsonObject, layers: number, where: string): number {
  const value = raw.select_layer ?? -1
  if (Number.isInteger(value) && Math.abs((value as number) + 0.5) <= layers + 0.5) return value as number
  const expected = `a whole number from ${-layers - 1} to ${layers}`
  throw new Mismatch({ where, field: 'select_layer', expected, got: value })
}

/** Pixel shuffle puts whole blocks of tokens together. */
function shuffleRatio(raw: JsonObject, where: string): number {
  const value = raw.downsample_ratio ?? 0.5
  if (typeof value === 'number' && [1, 2, 4, 8].includes(1 / value)) return value
  throw new Mismatch({ where, field: 'downsample_ratio', expected: '1, 0.5, 0.25 or 0.125', got: value })
}

/** Side of the grid of image tokens of a tile: 16 for 448 pixels in patches of 14, halved. */
export function tokenGrid(cfg: Sa2VAConfig): number {
  return Math.floor(Math.floor(cfg.image_size / cfg.vision.patch_size) * cfg.downsample_ratio)
}
