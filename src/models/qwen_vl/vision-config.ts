// vision_config of both generations. The classes' own defaults are those of no released model, so sizes have none here.
import { type JsonObject, Mismatch } from '../../core/index.ts'

/** vision_config; what a generation does not have is 0 or empty. */
export interface QwenVisionConfig {
  depth: number
  hidden_size: number
  num_heads: number
  intermediate_size: number
  out_hidden_size: number
  patch_size: number
  temporal_patch_size: number
  spatial_merge_size: number
  in_channels: number
  /** Qwen2.5-VL: side of a window in pixels, and the layers that see the whole image. */
  window_size: number
  fullatt_block_indexes: readonly number[]
  /** Qwen3-VL: rows of the position embedding, a square. */
  num_position_embeddings: number
  /** Qwen3-VL: layers whose output also goes to the first layers of the language model. */
  deepstack_visual_indexes: readonly number[]
}

interface VisionKeys {
  /** The key's whole number, or the given one if the key is absent. */
  or(key: string, usual: number): number
  /** Layers of the tower; the usual ones may name more than a small model has. */
  layers(key: string, usual: readonly number[]): readonly number[]
  refuse(key: string, expected: string, got: unknown): Mismatch
}

function sizesOf(raw: JsonObject, where: string, patch: number, own: (keys: VisionKeys) => Partial<QwenVisionConfig>) {
  const refuse = (key: string, expected: string, got: unknown) =>
    new Mismatch({ where, field: `vision_config.${key}`, expected, got })
  const size = (key: string) => wholeNumber(raw, key, where, 'vision_config.')
  const or = (key: string, usual: number) => (raw[key] === undefined ? usual : size(key))
  const depth = size('depth')
  const layers = (key: string, usual: readonly number[]) => {
    const value = raw[key] ?? usual
    const isLayer = (i: unknown) => Number.isInteger(i) && (i as number) >= 0 && (i as number) < depth
    if (value === usual || (Array.isArray(value) && value.every(isLayer))) return value as readonly number[]
    throw refuse(key, `a list of layers below ${depth}`, value)
  }
  const cfg: QwenVisionConfig = {
    depth,
    hidden_size: size('hidden_size'),
    num_heads: size('num_heads'),
    intermediate_size: size('intermediate_size'),
    out_hidden_size: size('out_hidden_size'),
    patch_size: or('patch_size', patch),
    temporal_patch_size: or('temporal_patch_size', 2),
    spatial_merge_size: or('spatial_merge_size', 2),
    in_channels: or('in_channels', or('in_chans', 3)),
    window_size: 0,
    fullatt_block_indexes: [],
    num_position_embeddings: 0,
    deepstack_visual_indexes: [],
    ...own({ or, layers, refuse }),
  }
  if (cfg.hidden_size % (4 * cfg.num_heads) === 0) return cfg
  throw refuse('num_heads', `heads of a size that 4 divides, of ${cfg.hidden_size}`, cfg.num_heads)
}

export function readVision2_5(raw: JsonObject, where: string): QwenVisionConfig {
  return sizesOf(raw, where, 14, ({ or, layers }) => ({
    window_size: or('window_size', 112),
    fullatt_block_indexes: layers('fullatt_block_indexes', [7, 15, 23, 31]),
  }))
}

export function readVision3(raw: JsonObject, where: string): QwenVisionConfig {
  return sizesOf(raw, where, 16, ({ or, layers, refuse }) => {
    const positions = or('num_position_embeddings', 2304)
    if (!Number.isInteger(Math.sqrt(positions)) || positions < 1)
      throw refuse('num_position_embeddings', 'the area of a square', positions)
    const act = raw.hidden_act ?? 'gelu_pytorch_tanh'
    if (act !== 'gelu_pytorch_tanh') throw refuse('hidden_act', 'gelu_pytorch_tanh', act)
    const rope = { rope_type: 'axial', rope_theta: 10000, ...(raw.rope_parameters as JsonObject | null | undefined) }
    if (rope.rope_type !== 'axial' || rope.rope_theta !== 10000)
      throw refuse('rope_parameters', 'rope_type axial, rope_theta 10000', JSON.stringify(raw.rope_parameters))
    const taps = layers('deepstack_visual_indexes', [])
    return { num_position_embeddings: positions, deepstack_visual_indexes: taps }
  })
}

export function wholeNumber(raw: JsonObject, key: string, where: string, part: string): number {
  const value = raw[key]
  const most = key === 'depth' ? 1024 : key.endsWith('_id') ? 16_777_216 : 1_048_576 // more is a damaged file
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most) return value
  const expected = (value as number) > most ? `at most ${most}` : 'a whole number'
  throw new Mismatch({ where, field: `${part}${key}`, expected, got: value ?? 'nothing' })
}
