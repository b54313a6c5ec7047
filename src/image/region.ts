import { Mismatch } from '../core/index.ts'
import { checkImage, type RgbImage } from './image.ts'

/** The shape of the mask room's `Mask`: COCO runs, column-major, the first run is outside. */
export interface MaskRuns {
  readonly height: number
  readonly width: number
  readonly counts: Uint32Array
}

/** Calls `visit(x, top, bottom)` for every column segment inside; bottom is exclusive. */
function eachSegment(mask: MaskRuns, visit: (x: number, top: number, bottom: number) => void): void {
  const { height, counts } = mask
  let q = 0
  for (let i = 0; i < counts.length; i++) {
    const end = q + counts[i]!
    while (i % 2 === 1 && q < end) {
      const x = Math.floor(q / height)
      const top = q - x * height
      const bottom = Math.min(height, top + end - q)
      visit(x, top, bottom)
      q += bottom - top
    }
    q = end
  }
}

export interface RegionCells {
  /** Row-major [grid, grid], 1 = the cell's image token is repeated in the prompt. */
  readonly cells: Uint8Array
  readonly count: number
  /** The nearest samples missed the mask; `cells` holds the one cell that overlaps it most. */
  readonly fallback: boolean
}

/** For each input position, the grid cells that sample it: torch's nearest, floor(cell * size / grid) in float32. */
function samplesOf(size: number, grid: number): number[][] {
  const out: number[][] = Array.from({ length: size }, () => [])
  for (let cell = 0; cell < grid; cell++) {
    const source = Math.floor(Math.fround(cell * Math.fround(size / grid)))
    out[Math.min(source, size - 1)]!.push(cell)
  }
  return out
}

function sampledCells(mask: MaskRuns, grid: number): Uint8Array {
  const rows = samplesOf(mask.height, grid)
  const columns = samplesOf(mask.width, grid)
  const cells = new Uint8Array(grid * grid)
  eachSegment(mask, (x, top, bottom) => {
    for (const column of columns[x]!)
      for (let y = top; y < bottom; y++) for (const row of rows[y]!) cells[row * grid + column] = 1
  })
  return cells
}

/** Pixels of the mask per cell; a pixel belongs to the cell that holds its centre. */
function overlaps(mask: MaskRuns, grid: number): Uint32Array {
  const cellOf = (at: number, size: number) => Math.floor(((at + 0.5) * grid) / size)
  const pixels = new Uint32Array(grid * grid)
  eachSegment(mask, (x, top, bottom) => {
    const column = cellOf(x, mask.width)
    for (let y = top; y < bottom; y++) pixels[cellOf(y, mask.height) * grid + column]!++
  })
  return pixels
}

/**
 * The cells of the prompt grid that a region covers, sampled as the reference does. A region too thin to be sampled takes the
 * cell with the largest overlap (first in raster order) and says so; the reference would insert nothing. An empty mask
 * gives count 0.
 */
export function regionGrid(mask: MaskRuns, grid: number): RegionCells {
  if (!Number.isInteger(grid) || grid < 1)
    throw new Mismatch({ where: 'regionGrid', field: 'grid', expected: 'a whole number of at least 1', got: grid })
  const cells = sampledCells(mask, grid)
  const count = cells.reduce((n, c) => n + c, 0)
  if (count > 0) return { cells, count, fallback: false }
  const pixels = overlaps(mask, grid)
  const most = pixels.reduce((a, b) => Math.max(a, b), 0)
  if (most === 0) return { cells, count: 0, fallback: false }
  cells[pixels.indexOf(most)] = 1
  return { cells, count: 1, fallback: true }
}

/** The image with the region tinted half way to the colour; for previews. */
export function overlay(
  image: RgbImage,
  mask: MaskRuns,
  colour: readonly [number, number, number] = [255, 64, 64],
): RgbImage {
  checkImage(image, 'overlay')
  if (mask.width !== image.width || mask.height !== image.height)
    throw new Mismatch({
      where: 'overlay',
      expected: `a mask of ${image.height} x ${image.width}`,
      got: `${mask.height} x ${mask.width}`,
    })
  const data = image.data.slice()
  eachSegment(mask, (x, top, bottom) => {
    for (let y = top; y < bottom; y++) {
      const p = (y * image.width + x) * 3
      for (let c = 0; c < 3; c++) data[p + c] = (data[p + c]! + colour[c]! + 1) >> 1
    }
  })
  return { width: image.width, height: image.height, data }
}
