// Pictures of a golden folder of Sa2VA on a Qwen-VL: resized bytes, grids, normalised pixels of both towers.
import type { CheckRow } from '../core/index.ts'
import { samInput } from '../image/index.ts'
import { firstSize, type ProcessorConfig, prepareQwenImage, smartResize } from '../models/index.ts'
import { compareIds } from './compare.ts'
import type { QwenCase } from './sa2va-qwen.ts'

export interface ResizeCase {
  width: number
  height: number
  resized_hw: number[]
  first_resized_hw: number[]
  twice_resized_hw: number[]
}

const released = { minPixels: 512 * 28 * 28, maxPixels: 2048 * 28 * 28 }

const exact = { abs: 1e-6, words: '1e-6' }

export function pictureRows(c: QwenCase): CheckRow[] {
  const { want, golden } = c
  const { patches, picture, samPixels } = c.image
  const { cfg, processor } = c.family.loaded
  const pillow = prepareQwenImage(c.picture, cfg, { ...processor, fast: false })
  const rounded = samInput(c.picture, cfg.sam.image_size, 'bfloat16')
  return [
    want.ids('seg.image_grid_thw', [1, patches.rows, patches.columns]),
    want.ids('pre.resized_u8', picture.data),
    want.ids('pre.resized_pillow_u8', pillow.picture.data),
    want.values('seg.pixel_values', patches.pixels, exact),
    want.values('seg.g_pixel_values', samPixels, exact),
    want.values('seg.g_pixel_values_bf16', rounded, { abs: 0, words: 'equal' }),
    ...releasedRows(c),
    ...(golden.smart_resize_cases ?? []).map((one) => resizeRow(one, processor)),
  ]
}

/** At the limits of the released code: the grid, and every 8th pixel. */
function releasedRows(c: QwenCase): CheckRow[] {
  const { cfg, processor } = c.family.loaded
  const { patches, picture } = prepareQwenImage(c.picture, cfg, { ...processor, ...released })
  const every8: number[] = []
  for (let y = 0; y < picture.height; y += 8)
    for (let x = 0; x < picture.width; x += 8)
      for (let k = 0; k < 3; k++) every8.push(picture.data[(y * picture.width + x) * 3 + k]!)
  const rows = [
    c.want.ids('full.image_grid_thw', [1, patches.rows, patches.columns]),
    c.want.ids('full.resized_u8_every8', every8),
  ]
  const large = c.golden.full_grid_of_2000x1500?.flat()
  if (!large) return rows
  const sides = smartResize(1500, 2000, { ...processor, ...released }).map((side) => side / processor.patch)
  return [...rows, compareIds('full_grid_of_2000x1500', [1, ...sides], large)]
}

function resizeRow(one: ResizeCase, processor: ProcessorConfig): CheckRow {
  const { width, height } = one
  const limits = { ...processor, ...released }
  const first = firstSize(height, width)
  const got = [...smartResize(height, width, limits), ...first, ...smartResize(...first, limits)]
  const want = [...one.resized_hw, ...one.first_resized_hw, ...one.twice_resized_hw]
  return compareIds(`smart_resize ${width}x${height}`, got, want)
}
