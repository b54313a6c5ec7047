import { type JsonObject, Mismatch } from '../../core/index.ts'
import { layerList, readVisionSizes } from '../qwen2_5_vl/index.ts'

export interface Qwen3VisionConfig {
  depth: number
  hidden_size: number
  num_heads: number
  intermediate_size: number
  out_hidden_size: number
  patch_size: number
  temporal_patch_size: number
  spatial_merge_size: number
  in_channels: number
  /** Rows of the position embedding: a square. */
  num_position_embeddings: number
  /** Layers whose output also goes to the first layers of the language model. */
  deepstack_visual_indexes: readonly number[]
}

export function readQwen3Vision(raw: JsonObject, where: string): Qwen3VisionConfig {
  const { sizes, or } = readVisionSizes(raw, where, 16)
  const cfg = {
    ...sizes,
    in_channels: or('in_channels', 3),
    num_position_embeddings: or('num_position_embeddings', 2304),
    deepstack_visual_indexes: layerList(raw, 'deepstack_visual_indexes', [], where),
  }
  check(cfg, raw, where)
  return cfg
}

function check(cfg: Qwen3VisionConfig, raw: JsonObject, where: string): void {
  const bad = (field: string, expected: string, got: unknown) =>
    new Mismatch({ where, field: `vision_config.${field}`, expected, got })
  if (cfg.hidden_size % (4 * cfg.num_heads) !== 0)
    throw bad('num_heads', `heads of a size that 4 divides, of ${cfg.hidden_size}`, cfg.num_heads)
  if (!Number.isInteger(Math.sqrt(cfg.num_position_embeddings)) || cfg.num_position_embeddings < 1)
    throw bad('num_position_embeddings', 'the area of a square', cfg.num_position_embeddings)
  const act = raw.hidden_act ?? 'gelu_pytorch_tanh'
  if (act !== 'gelu_pytorch_tanh') throw bad('hidden_act', 'gelu_pytorch_tanh', act)
}
