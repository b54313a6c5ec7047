import { Mismatch } from '../core/index.ts'
import { checkImage, type RgbImage } from './image.ts'
import type { TileGrid } from './tiles.ts'

/** The shape of the mask room's `Mask`: COCO runs, column-major, the first run is outside. */
interface MaskRuns {
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

interface RegionCells {
  /** Row-major [rows, columns], 1 = the cell's image token is repeated in the prompt. */
  readonly cells: Uint8Array
  readonly count: number
  /** The nearest samples missed the mask; `cells` holds the one cell that overlaps it most. */
  readonly fallback: boolean
}

/** The input position of each grid cell: torch's nearest, floor(cell * size / grid) in float32. */
function samplesOf(size: number, grid: number): number[] {
  const source = (cell: number) => Math.floor(Math.fround(cell * Math.fround(size / grid)))
  return Array.from({ length: grid }, (_, cell) => Math.min(source(cell), size - 1))
}

/** Samples are in the order of the runs, unless columns are sampled twice: one walk over the runs, however many there are. */
function sampledCells({ height, width, counts }: MaskRuns, grid: TileGrid): Uint8Array {
  const [rows, columns] = [samplesOf(height, grid.rows), samplesOf(width, grid.columns)]
  const cells = new Uint8Array(grid.rows * grid.columns)
  let run = -1
  let end = 0
  let first: [number, number] = [run, end] // of the last column
  for (let column = 0; column < columns.length; column++) {
    if (columns[column] === columns[column - 1]) [run, end] = first
    else first = [run, end]
    for (let row = 0; row < rows.length; row++) {
      const at = columns[column]! * height + rows[row]!
      while (at >= end) end += counts[++run]!
      cells[row * grid.columns + column] = run % 2
    }
  }
  return cells
}

/** Pixels of the mask per cell; a pixel belongs to the cell that holds its centre. */
function overlaps(mask: MaskRuns, { rows, columns }: TileGrid): Uint32Array {
  const cellOf = (at: number, size: number, cells: number) => Math.floor(((at + 0.5) * cells) / size)
  const pixels = new Uint32Array(rows * columns)
  eachSegment(mask, (x, top, bottom) => {
    const column = cellOf(x, mask.width, columns)
    for (let y = top; y < bottom; y++) pixels[cellOf(y, mask.height, rows) * columns + column]!++
  })
  return pixels
}

/**
 * The cells of the prompt grid that a region covers, sampled as the reference does. A region too thin to be sampled takes the
 * cell with the largest overlap (first in raster order) and says so; the reference would insert nothing. An empty mask
 * gives count 0.
 */
export function regionGrid(mask: MaskRuns, size: number | TileGrid): RegionCells {
  const grid = typeof size === 'number' ? { rows: size, columns: size } : size
  for (const side of [grid.rows, grid.columns])
    if (!Number.isInteger(side) || side < 1)
      throw new Mismatch({ where: 'regionGrid', field: 'grid', expected: 'a whole number of at least 1', got: side })
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
  const [expected, got] = [image, mask].map(({ height, width }) => `${height} x ${width}`)
  if (got !== expected) throw new Mismatch({ where: 'overlay', expected: `a mask of ${expected}`, got })
  const data = image.data.slice()
  eachSegment(mask, (x, top, bottom) => {
    for (let y = top; y < bottom; y++) {
      const p = (y * image.width + x) * 3
      for (let c = 0; c < 3; c++) data[p + c] = (data[p + c]! + colour[c]! + 1) >> 1
    }
  })
  return { width: image.width, height: image.height, data }
}

/**
 * The image with the region's outline drawn on it, for models that look at a picture instead of at cells. The mask may have another
 * size; it is sampled to the image's. The line lies on both sides of the border and grows with the image.
 */
export function outline(
  image: RgbImage,
  mask: MaskRuns,
  colour: readonly [number, number, number] = [255, 0, 0],
): RgbImage {
  checkImage(image, 'outline')
  const { width, height } = image
  const { cells: inside } = regionGrid(mask, { rows: height, columns: width })
  const reach = Math.max(1, Math.round(Math.min(width, height) / 200))
  const data = image.data.slice()
  for (const at of nearBorder(inside, width, height, reach)) data.set(colour, at * 3)
  return { width, height, data }
}

/** Pixels within `reach` of a pixel of the other kind, along a row or a column. */
function nearBorder(inside: Uint8Array, width: number, height: number, reach: number): Set<number> {
  const near = new Set<number>()
  const mark = (x: number, y: number, dx: number, dy: number) => {
    for (let k = 1 - reach; k <= reach; k++) {
      const [px, py] = [x + k * dx, y + k * dy]
      if (px >= 0 && px < width && py >= 0 && py < height) near.add(py * width + px)
    }
  }
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const here = inside[y * width + x]
      if (x + 1 < width && inside[y * width + x + 1] !== here) mark(x, y, 1, 0)
      if (y + 1 < height && inside[(y + 1) * width + x] !== here) mark(x, y, 0, 1)
    }
  return near
}
