// An image as Qwen-VL takes it: resized to a multiple of a unit (28 pixels; Qwen3-VL 32), cut into patches, four neighbours together.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type JsonObject, Mismatch, readJsonObject } from '../../core/index.ts'
import { normaliseChw, type Pixels, type PixelType, type RgbImage, resize } from '../../image/index.ts'

/** Rows and columns of patches. */
export interface Grid {
  rows: number
  columns: number
}

export interface PatchedImage extends Grid {
  /** [rows * columns, 3 * frames * patch * patch], patches of a 2x2 unit after each other. */
  pixels: Pixels
  /** Of the original. */
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
  /** The arithmetic of the "fast" processors (torchvision) instead of Pillow's: up to two grey levels apart. */
  fast: boolean
}

/** Of Qwen2.5-VL's class, when a folder has no file: its largest image is a thirteenth of the released models'. */
export const clipProcessor: ProcessorConfig = {
  minPixels: 56 * 56,
  maxPixels: 28 * 28 * 1280,
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
  patch: 14,
  merge: 2,
  frames: 2,
  fast: false,
}

/** `usual`: the values that the file leaves out. Newer folders have them inside processor_config.json. */
export function readProcessorConfig(dir: string, usual: ProcessorConfig = clipProcessor): ProcessorConfig {
  const [own, whole] = [join(dir, 'preprocessor_config.json'), join(dir, 'processor_config.json')]
  const inside = !existsSync(own) && existsSync(whole) ? readJsonObject(whole).image_processor : undefined
  if (!existsSync(own) && !inside) return usual
  const raw = (inside as JsonObject | undefined) ?? readJsonObject(own)
  const size = (raw.size ?? {}) as { shortest_edge?: number; longest_edge?: number }
  const given = {
    minPixels: raw.min_pixels ?? size.shortest_edge,
    maxPixels: raw.max_pixels ?? size.longest_edge,
    mean: raw.image_mean,
    std: raw.image_std,
    patch: raw.patch_size,
    merge: raw.merge_size,
    frames: raw.temporal_patch_size,
    fast: /Fast$/.test(String(raw.image_processor_type ?? '')),
  }
  const there = Object.entries(given).filter(([, value]) => value !== undefined && value !== null)
  return { ...usual, ...Object.fromEntries(there) } as ProcessorConfig
}

/** Halves go to the even neighbour, as Python rounds. */
function roundEven(value: number): number {
  const floor = Math.floor(value)
  const rest = value - floor
  return rest === 0.5 ? floor + (floor % 2) : Math.round(value)
}

/** Height and width as multiples of patch * merge whose area lies between the limits, the aspect about kept. */
export function smartResize(height: number, width: number, config: ProcessorConfig = clipProcessor): [number, number] {
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

/** `type`: default float32. */
export type PatchSettings = ProcessorConfig & { type?: PixelType }

export function patchImage(image: RgbImage, config: PatchSettings = clipProcessor): PatchedImage {
  return { ...patchResized(resizeForPatches(image, config), config), height: image.height, width: image.width }
}

/** The picture the patches are cut from. */
export function resizeForPatches(image: RgbImage, config: ProcessorConfig): RgbImage {
  const [h, w] = smartResize(image.height, image.width, config)
  return resize(image, w, h, config.fast ? 'bicubic-16' : 'bicubic')
}

/** A picture whose sides are multiples of the unit, as patches. */
export function patchResized(picture: RgbImage, config: PatchSettings): PatchedImage {
  const { width, height } = picture
  const planes = normaliseChw(picture, config.mean, config.std, config.fast ? 'fused' : 'float32', config.type)
  const grid = { rows: height / config.patch, columns: width / config.patch }
  return { pixels: patches(planes, grid, config), ...grid, height, width }
}

/**
 * The resize that qwen_vl_utils does before the processor: Pillow's, to multiples of 28 whatever the model's unit is, no side below
 * one unit. Released inference resizes twice, training once.
 */
export function firstResize(image: RgbImage): RgbImage {
  const [h, w] = firstSize(image.height, image.width)
  return resize(image, w, h, 'bicubic')
}

export function firstSize(height: number, width: number): [number, number] {
  const unit = 28
  const limits = { ...clipProcessor, minPixels: 4 * unit * unit, maxPixels: 16384 * unit * unit }
  const [h, w] = [height, width].map((side) => Math.max(unit, roundEven(side / unit) * unit)) as [number, number]
  const inside = h * w >= limits.minPixels && h * w <= limits.maxPixels
  const usual = smartResize(height, width, limits) // refuses sides too far apart
  return inside ? [h, w] : usual
}

/** [3, h, w] -> [patches, 3 * frames * p * p]; the order is unit row, unit column, row and column in the unit. */
function patches<P extends Pixels>(planes: P, { rows, columns }: Grid, config: ProcessorConfig): P {
  const { patch: p, frames } = config
  const width = columns * p
  const plane = rows * p * width
  const out = new (planes.constructor as new (length: number) => P)(planes.length * frames)
  let o = 0
  for (const [row, column] of patchOrder({ rows, columns }, config.merge))
    for (let c = 0; c < 3; c++) {
      const first = o
      for (let y = 0, from = c * plane + row * p * width + column * p; y < p; y++, from += width)
        for (let x = 0; x < p; x++) out[o++] = planes[from + x]!
      for (let f = 1; f < frames; f++, o += p * p) out.copyWithin(o, first, first + p * p)
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
