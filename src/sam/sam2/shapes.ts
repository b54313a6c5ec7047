// The sizes of a SAM2 checkpoint, from the shapes of its weights. What shapes do not show (heads, windows, which blocks attend
// globally) is the same in all releases of a trunk; a trunk of other sizes needs its own configuration.
import { Mismatch } from '../../core/index.ts'
import { type Sam2Config, sam2Config } from './config.ts'

type Shapes = ReadonlyMap<string, readonly number[]>

const trunk = (
  name: string,
  embed_dim: number,
  num_heads: number,
  stages: number[],
  window_spec: number[],
  global_att_blocks: number[],
) => ({ name, embed_dim, stages, num_heads, window_spec, global_att_blocks })

/** The four published trunks. */
const trunks = [
  trunk('tiny', 96, 1, [1, 2, 7, 2], [8, 4, 14, 7], [5, 7, 9]),
  trunk('small', 96, 1, [1, 2, 11, 2], [8, 4, 14, 7], [7, 10, 13]),
  trunk('base_plus', 112, 2, [2, 3, 16, 3], [8, 4, 14, 7], [12, 16, 20]),
  trunk('large', 144, 2, [2, 6, 36, 4], [8, 4, 16, 8], [23, 33, 43]),
]

/** `shapes`: names without a prefix. */
export function sam2ConfigFromShapes(shapes: Shapes, where: string): Sam2Config {
  const shape = (name: string): readonly number[] => {
    const found = shapes.get(name)
    if (found) return found
    throw new Mismatch({ where, field: name, expected: 'a weight of SAM2', got: 'none of that name' })
  }
  const embed_dim = shape('image_encoder.trunk.patch_embed.proj.weight')[0]!
  const stages = stageDepths(shapes, embed_dim)
  const { name: _, ...published } = publishedTrunk(embed_dim, stages, where)
  const d_model = shape('image_encoder.neck.convs.0.conv.weight')[0]!
  return sam2Config(
    {
      ...published,
      d_model,
      window_pos_embed_bkg_spatial_size: shape('image_encoder.trunk.pos_embed').slice(2),
      decoder_depth: countOf(shapes, /^sam_mask_decoder\.transformer\.layers\.(\d+)\./),
      decoder_mlp_dim: shape('sam_mask_decoder.transformer.layers.0.mlp.layers.0.weight')[0]!,
      num_multimask_outputs: shape('sam_mask_decoder.mask_tokens.weight')[0]! - 1,
      iou_head_depth: countOf(shapes, /^sam_mask_decoder\.iou_prediction_head\.layers\.(\d+)\./),
      iou_head_hidden_dim: shape('sam_mask_decoder.iou_prediction_head.layers.0.weight')[0]!,
      mask_in_chans: shapes.get('sam_prompt_encoder.mask_downscaling.3.weight')?.[0] ?? 16,
    },
    where,
  )
}

function countOf(shapes: Shapes, pattern: RegExp): number {
  return new Set([...shapes.keys()].flatMap((name) => pattern.exec(name)?.[1] ?? [])).size
}

/** Blocks of each width: a stage doubles the channels of the one before it. */
function stageDepths(shapes: Shapes, embed: number): number[] {
  const depths = [0, 0, 0, 0]
  for (const [name, shape] of shapes) {
    if (!/^image_encoder\.trunk\.blocks\.\d+\.attn\.proj\.weight$/.test(name)) continue
    const stage = Math.log2(shape[0]! / embed)
    if (depths[stage] !== undefined) depths[stage]++
  }
  return depths
}

function publishedTrunk(embed: number, stages: readonly number[], where: string) {
  const found = trunks.find((t) => t.embed_dim === embed && String(t.stages) === String(stages))
  if (found) return found
  const sizes = (channels: number, depths: readonly number[]) => `${channels} channels, ${depths.join('+')} blocks`
  const expected = trunks.map((t) => `${t.name} (${sizes(t.embed_dim, t.stages)})`).join(', ')
  const hint = 'for another trunk put its sizes into grounding_encoder_config of a config.json beside the weights'
  throw new Mismatch({ where, field: 'image_encoder.trunk', expected, got: sizes(embed, stages), hint })
}
