// An image as Qwen2.5-VL takes it: resized to a multiple of 28 pixels, cut into patches of 14, four neighbours together.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { readJsonObject } from '../../checkpoint/index.ts'
import { Mismatch } from '../../core/index.ts'
import { normaliseChw, type RgbImage, resize } from '../../image/index.ts'

/** Rows and columns of patches. */
export interface Grid {
  rows: number
  columns: number
}

export interface PatchedImage extends Grid {
  /** [rows * columns, 3 * 2 * 14 * 14], patches of a 2x2 unit after each other. */
  pixels: Float32Array
  height: number
  width: number
}

/** preprocessor_config.json. */
export interface ProcessorConfig {
  minPixels: number
  maxPixels: number
  mean: readonly number[]
  std: readonly number[]
  patch: number
  merge: number
  /** Frames of a patch; a still image is repeated. */
  frames: number
}

/** Of the class, when a folder has no file: its largest image is a thirteenth of the released models'. */
const defaults: ProcessorConfig = {
  minPixels: 56 * 56,
  maxPixels: 28 * 28 * 1280,
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
  patch: 14,
  merge: 2,
  frames: 2,
}

export function readProcessorConfig(dir: string): ProcessorConfig {
  const where = join(dir, 'preprocessor_config.json')
  if (!existsSync(where)) return defaults
  const raw = readJsonObject(where)
  const size = (raw.size ?? {}) as { shortest_edge?: number; longest_edge?: number }
  const given = {
    minPixels: raw.min_pixels ?? size.shortest_edge,
    maxPixels: raw.max_pixels ?? size.longest_edge,
    mean: raw.image_mean,
    std: raw.image_std,
    patch: raw.patch_size,
    merge: raw.merge_size,
    frames: raw.temporal_patch_size,
  }
  const there = Object.entries(given).filter(([, value]) => value !== undefined && value !== null)
  return { ...defaults, ...Object.fromEntries(there) } as ProcessorConfig
}

/** Halves go to the even neighbour, as Python rounds. */
function roundEven(value: number): number {
  const floor = Math.floor(value)
  const rest = value - floor
  return rest === 0.5 ? floor + (floor % 2) : Math.round(value)
}

/** Height and width as multiples of patch * merge whose area lies between the limits, the aspect about kept. */
export function smartResize(height: number, width: number, config: ProcessorConfig = defaults): [number, number] {
  const { minPixels, maxPixels } = config
  const unit = config.patch * config.merge
  const ratio = Math.max(height, width) / Math.min(height, width)
  if (!(ratio <= 200))
    throw new Mismatch({ where: 'image', field: 'aspect', expected: 'at most 200 to 1', got: `${height}x${width}` })
  const [h, w] = [height, width].map((side) => roundEven(side / unit) * unit) as [number, number]
  if (h * w > maxPixels) {
    const beta = Math.sqrt((height * width) / maxPixels)
    return [height, width].map((side) => Math.max(unit, Math.floor(side / beta / unit) * unit)) as [number, number]
  }
  if (h * w < minPixels) {
    const beta = Math.sqrt(minPixels / (height * width))
    return [height, width].map((side) => Math.ceil((side * beta) / unit) * unit) as [number, number]
  }
  return [h, w]
}

export function patchImage(image: RgbImage, config: ProcessorConfig = defaults): PatchedImage {
  const [h, w] = smartResize(image.height, image.width, config)
  const planes = normaliseChw(resize(image, w, h, 'bicubic'), config.mean, config.std)
  const grid = { rows: h / config.patch, columns: w / config.patch }
  return { pixels: patches(planes, grid, config), ...grid, height: image.height, width: image.width }
}

/** [3, h, w] -> [patches, 3 * frames * p * p]; the order is unit row, unit column, row and column in the unit. */
function patches(planes: Float32Array, { rows, columns }: Grid, config: ProcessorConfig): Float32Array {
  const { patch: p, frames } = config
  const width = columns * p
  const plane = rows * p * width
  const out = new Float32Array(planes.length * frames)
  let o = 0
  for (const [row, column] of patchOrder({ rows, columns }, config.merge))
    for (let c = 0; c < 3; c++)
      for (let f = 0; f < frames; f++)
        for (let y = 0; y < p; y++, o += p) {
          const from = c * plane + (row * p + y) * width + column * p
          out.set(planes.subarray(from, from + p), o)
        }
  return out
}

/** Row and column of every patch, units of merge x merge after each other, row by row inside and outside. */
export function patchOrder({ rows, columns }: Grid, merge: number): [number, number][] {
  const out: [number, number][] = []
  for (let unitRow = 0; unitRow < rows; unitRow += merge)
    for (let unitColumn = 0; unitColumn < columns; unitColumn += merge)
      for (let y = 0; y < merge; y++) for (let x = 0; x < merge; x++) out.push([unitRow + y, unitColumn + x])
  return out
}
