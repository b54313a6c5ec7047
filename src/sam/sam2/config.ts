// Sizes of SAM2's image path. Keys as in the `grounding_encoder_config` block of config.json; a released checkpoint has no such
// block and takes the defaults, which are SAM2 with the Hiera-L trunk.
import { z } from 'zod'
import { expectedOf } from '../../config/index.ts'
import { Mismatch } from '../../core/index.ts'

const size = z.int().positive().max(65_536) // more is a damaged file
const depth = size.max(512)
const four = z.array(size).length(4)
const pair = z.array(size).length(2)

const Sam2Keys = z.strictObject({
  image_size: size.max(8192).default(1024).describe('side of the square input in pixels'),
  embed_dim: size.default(144).describe('channels of the first stage; each later stage doubles them'),
  num_heads: size.default(2).describe('heads of the first stage; each later stage doubles them'),
  stages: z.array(depth).length(4).default([2, 6, 36, 4]).describe('blocks per stage'),
  window_spec: four.default([8, 4, 16, 8]).describe('attention window of each stage, in cells'),
  global_att_blocks: z
    .array(z.int().nonnegative())
    .default([23, 33, 43])
    .describe('blocks that attend over the whole map'),
  window_pos_embed_bkg_spatial_size: pair.default([7, 7]).describe('size of the coarse position map'),
  d_model: size.default(256).describe('channels of the neck, the prompts and the decoder'),
  fpn_top_down_levels: z
    .array(z.int().min(0).max(3))
    .default([2, 3])
    .describe('levels that take in the level above them'),
  decoder_depth: depth.default(2),
  decoder_heads: size.default(8),
  decoder_mlp_dim: size.default(2048),
  num_multimask_outputs: depth.default(3).describe('masks proposed beside the single one'),
  iou_head_depth: depth.min(2).default(3),
  iou_head_hidden_dim: size.default(256),
  mask_in_chans: size.multipleOf(4).default(16).describe('channels of the mask prompt before d_model'),
  dynamic_multimask_stability_delta: z.number().nonnegative().default(0.05),
  dynamic_multimask_stability_thresh: z.number().default(0.98),
  mem_dim: size.optional().describe('video only: not used here'),
  video: z.boolean().optional().describe('video only: not used here'),
})

/** `once`: results are rounded once, as close to float32 as 16-bit weights allow. `bf16-ref`: where the reference rounds. */
export type Rounding = 'once' | 'bf16-ref'

/** `rounding` is the caller's choice and is not stored in any file. */
export type Sam2Config = z.infer<typeof Sam2Keys> & { rounding?: Rounding }

/** Other spellings of a key. */
const aliases: Readonly<Record<string, string>> = { bkg_pos_size: 'window_pos_embed_bkg_spatial_size' }

function fail(where: string, field: string, expected: string, got: unknown, hint?: string): never {
  throw new Mismatch({ where, field, expected, got, hint })
}

function spelled(block: object, where: string): Record<string, unknown> {
  const out: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(block)) {
    const name = aliases[key] ?? key
    if (name in out) fail(where, key, `${name} once`, 'two spellings of it')
    out[name] = value
  }
  return out
}

/** Checks the block, fills in what is absent, and refuses sizes that the network cannot be built with. */
export function sam2Config(block: unknown = {}, where = 'config.json: grounding_encoder_config'): Sam2Config {
  if (block === null || typeof block !== 'object' || Array.isArray(block))
    throw new Mismatch({ where, expected: 'an object', got: block })
  const keys = spelled(block, where)
  const parsed = Sam2Keys.safeParse(keys)
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!
    if (issue.code === 'unrecognized_keys')
      fail(where, issue.keys[0]!, `one of ${Object.keys(Sam2Keys.shape).join(', ')}`, 'an unknown key')
    const at = issue.path.reduce<unknown>((v, k) => (v as Record<PropertyKey, unknown>)?.[k], keys)
    fail(where, issue.path.join('.'), expectedOf(issue), at)
  }
  checkTrunk(parsed.data, where)
  checkHeads(parsed.data, where)
  return parsed.data
}

function checkTrunk(c: Sam2Config, where: string): void {
  if (c.image_size % 32 !== 0)
    fail(where, 'image_size', 'a multiple of 32 (patches of 4, halved three times)', c.image_size)
  if (c.embed_dim % c.num_heads !== 0) fail(where, 'embed_dim', `a multiple of num_heads ${c.num_heads}`, c.embed_dim)
  const cells = c.image_size / 4
  if (cells % c.window_spec[0]! !== 0)
    fail(where, 'window_spec.0', `a divisor of the ${cells} cells per side`, c.window_spec[0])
  for (const stage of [0, 1, 2]) {
    const w = c.window_spec[stage]!
    if (w % 2 !== 0) fail(where, `window_spec.${stage}`, 'an even window: the next stage pools it by 2', w)
  }
  const blocks = c.stages.reduce((a, b) => a + b, 0)
  const outside = c.global_att_blocks.find((b) => b >= blocks)
  if (outside !== undefined) fail(where, 'global_att_blocks', `below the ${blocks} blocks`, outside)
}

function checkHeads(c: Sam2Config, where: string): void {
  if (c.d_model % 8 !== 0)
    fail(where, 'd_model', 'a multiple of 8 (mask features have d_model / 8 channels)', c.d_model)
  if ((c.d_model / 2) % c.decoder_heads !== 0)
    fail(where, 'decoder_heads', `a divisor of d_model / 2 = ${c.d_model / 2}`, c.decoder_heads)
}

/** Cells per side of level 2, the map the decoder reads. */
export function embeddingSize(c: Sam2Config): number {
  return c.image_size / 16
}
