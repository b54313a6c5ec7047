// Pictures of a golden folder of Sa2VA on a Qwen-VL: resized bytes, grids, normalised pixels of both towers.
import type { CheckRow } from '../core/index.ts'
import { samInput } from '../image/index.ts'
import { firstSize, type ProcessorConfig, prepareQwenImage, smartResize } from '../models/index.ts'
import { compareIds, compareNumbers } from './compare.ts'
import { get, numbers, type QwenCase, type ResizeCase } from './sa2va-qwen-case.ts'

const released = { minPixels: 512 * 28 * 28, maxPixels: 2048 * 28 * 28 }

export function pictureRows(c: QwenCase): CheckRow[] {
  const { patches, picture } = c.image
  const { loaded } = c
  const pillow = prepareQwenImage(c.picture, loaded.cfg, { ...loaded.processor, fast: false })
  return [
    compareIds('seg.image_grid_thw', [1, patches.rows, patches.columns], numbers(c, 'seg.image_grid_thw')),
    compareIds('pre.resized_u8', picture.data, numbers(c, 'pre.resized_u8')),
    compareIds('pre.resized_pillow_u8', pillow.picture.data, numbers(c, 'pre.resized_pillow_u8')),
    compareNumbers('seg.pixel_values', patches.pixels, get(c, 'seg.pixel_values'), { abs: 1e-6, words: '1e-6' }),
    ...samPixelRows(c),
    ...releasedRows(c),
    ...(c.golden.smart_resize_cases ?? []).map((one) => resizeRow(one, loaded.processor)),
  ]
}

function samPixelRows(c: QwenCase): CheckRow[] {
  const rounded = samInput(c.picture, c.loaded.cfg.sam.image_size, 'bfloat16')
  return [
    compareNumbers('seg.g_pixel_values', c.image.samPixels, get(c, 'seg.g_pixel_values'), { abs: 1e-6, words: '1e-6' }),
    compareNumbers('seg.g_pixel_values_bf16', rounded, get(c, 'seg.g_pixel_values_bf16'), { abs: 0, words: 'equal' }),
  ]
}

/** At the limits of the released code: the grid, and every 8th pixel. */
function releasedRows(c: QwenCase): CheckRow[] {
  const { cfg, processor } = c.loaded
  const { patches, picture } = prepareQwenImage(c.picture, cfg, { ...processor, ...released })
  const every8: number[] = []
  for (let y = 0; y < picture.height; y += 8)
    for (let x = 0; x < picture.width; x += 8)
      for (let k = 0; k < 3; k++) every8.push(picture.data[(y * picture.width + x) * 3 + k]!)
  const rows = [
    compareIds('full.image_grid_thw', [1, patches.rows, patches.columns], numbers(c, 'full.image_grid_thw')),
    compareIds('full.resized_u8_every8', every8, numbers(c, 'full.resized_u8_every8')),
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
