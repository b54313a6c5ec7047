// Sizes of MobileSAM. The npm package has the defaults; a folder written by `roundtrip export` names its own in config.json.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { refusalOf } from '../../config/index.ts'
import { readJsonObject } from '../../core/index.ts'

export const samArchitecture = 'MobileSAM'

const size = z.int().positive().max(65_536) // more is a damaged file
const stages = (sizes: [number, number, number, number]) => z.array(size).length(4).default(sizes)

export const SamConfig = z.strictObject({
  architectures: z.tuple([z.literal(samArchitecture)]).default([samArchitecture]),
  image_size: size.multipleOf(32).max(8192).default(1024).describe('side of the square input in pixels'),
  embed_dims: stages([64, 128, 160, 320]).describe('channels of the stages of TinyViT'),
  depths: stages([2, 2, 6, 2]).describe('blocks of each stage'),
  num_heads: stages([2, 4, 5, 10]).describe('attention heads of each stage; the first has convolutions alone'),
  window_sizes: stages([7, 7, 14, 7]).describe('side of the attention windows of each stage'),
  d_model: size.multipleOf(8).default(256).describe('channels of the neck, the prompts and the decoder'),
  decoder_heads: size.default(8),
  decoder_mlp_dim: size.default(2048),
})
export type SamConfig = z.infer<typeof SamConfig>

/** Whether a folder has the config.json of a MobileSAM that was exported. */
export function isSamFolder(folder: string): boolean {
  const file = join(folder, 'config.json')
  const { architectures } = existsSync(file) ? readJsonObject(file) : {}
  return Array.isArray(architectures) && architectures[0] === samArchitecture
}

export function readSamConfig(folder: string): SamConfig {
  const where = join(folder, 'config.json')
  const raw = readJsonObject(where)
  const parsed = SamConfig.safeParse(raw)
  if (!parsed.success) throw refusalOf(parsed.error, raw, where)
  return parsed.data
}
