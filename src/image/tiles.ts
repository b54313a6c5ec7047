import { Mismatch } from '../core/index.ts'
import { checkImage, checkSize, type RgbImage } from './image.ts'
import { resize } from './resample.ts'

// InternVL's dynamic tiling: the grid whose shape is nearest the image's, the image stretched over it, plus a thumbnail.

export interface TileOptions {
  /** Side of a tile in pixels. */
  readonly tileSize?: number
  readonly minTiles?: number
  readonly maxTiles?: number
  /** Append the whole image as one more tile when there is more than one. */
  readonly thumbnail?: boolean
}

export const tileDefaults = { tileSize: 448, minTiles: 1, maxTiles: 12, thumbnail: true } as const

/** Every grid up to this many tiles is tried for every image; models are trained with at most 40. */
const tileLimit = 1024

/** Cells of a grid over the whole image. */
export interface TileGrid {
  readonly columns: number
  readonly rows: number
}

/** Every grid of minTiles to maxTiles cells, small ones first, equal areas by columns. */
function candidates(minTiles: number, maxTiles: number): TileGrid[] {
  const out: TileGrid[] = []
  for (let area = minTiles; area <= maxTiles; area++)
    for (let columns = 1; columns <= area; columns++)
      if (area % columns === 0) out.push({ columns, rows: area / columns })
  return out
}

function checkOptions(o: Required<TileOptions>): void {
  const whole = [o.tileSize, o.minTiles, o.maxTiles].every((n) => Number.isInteger(n) && n > 0)
  if (whole && o.minTiles <= o.maxTiles && o.maxTiles <= tileLimit) return
  const { tileSize, minTiles, maxTiles } = o
  const expected = `tileSize >= 1 and 1 <= minTiles <= maxTiles <= ${tileLimit}`
  throw new Mismatch({ where: 'tiles', expected, got: { tileSize, minTiles, maxTiles } })
}

/** The grid for an image. On an exact tie the larger grid wins if the image has over half of its pixels. */
export function tileGrid(width: number, height: number, options: TileOptions = {}): TileGrid {
  const o = { ...tileDefaults, ...options }
  checkOptions(o)
  checkSize(width, height, 'tileGrid')
  const aspect = width / height
  let best = Infinity
  let chosen: TileGrid = { columns: 1, rows: 1 }
  for (const grid of candidates(o.minTiles, o.maxTiles)) {
    const difference = Math.abs(aspect - grid.columns / grid.rows)
    const largeEnough = width * height > 0.5 * o.tileSize * o.tileSize * grid.columns * grid.rows
    if (difference < best || (difference === best && largeEnough)) chosen = grid
    best = Math.min(best, difference)
  }
  return chosen
}

/** Tiles of a grid, the thumbnail included. */
export function tileCount(grid: TileGrid, options: TileOptions = {}): number {
  const n = grid.columns * grid.rows
  return n > 1 && (options.thumbnail ?? tileDefaults.thumbnail) ? n + 1 : n
}

/** The stretched image that the grid cuts, and the thumbnail if there is one. */
export function stretch(image: RgbImage, options: TileOptions): { grid: TileGrid; sheet: RgbImage; thumb?: RgbImage } {
  const { tileSize } = { ...tileDefaults, ...options }
  checkImage(image, 'tiles')
  const grid = tileGrid(image.width, image.height, options)
  const sheet = resize(image, tileSize * grid.columns, tileSize * grid.rows, 'bicubic')
  const hasThumb = tileCount(grid, options) > grid.columns * grid.rows
  return hasThumb ? { grid, sheet, thumb: resize(image, tileSize, tileSize, 'bicubic') } : { grid, sheet }
}

/** A square part of an image. */
export function crop(image: RgbImage, left: number, top: number, size: number): RgbImage {
  const data = new Uint8Array(size * size * 3)
  for (let y = 0; y < size; y++) {
    const from = ((top + y) * image.width + left) * 3
    data.set(image.data.subarray(from, from + size * 3), y * size * 3)
  }
  return { width: size, height: size, data }
}

/** The tiles row by row, the thumbnail last. */
export function tiles(image: RgbImage, options: TileOptions = {}): RgbImage[] {
  const { tileSize } = { ...tileDefaults, ...options }
  const { grid, sheet, thumb } = stretch(image, options)
  const out: RgbImage[] = []
  for (let row = 0; row < grid.rows; row++)
    for (let column = 0; column < grid.columns; column++)
      out.push(crop(sheet, column * tileSize, row * tileSize, tileSize))
  return thumb ? [...out, thumb] : out
}
