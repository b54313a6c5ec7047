import { Mismatch } from '../core/index.ts'
import { checkImage, checkSize, type RgbImage } from './image.ts'
import { resize } from './resample.ts'
import { stretch, type TileOptions, tileCount, tileDefaults } from './tiles.ts'

export const imagenetMean: readonly number[] = [0.485, 0.456, 0.406]
export const imagenetStd: readonly number[] = [0.229, 0.224, 0.225]

/**
 * `float32`: torchvision's arithmetic. `bfloat16`: every step rounded to bfloat16, as Sa2VA prepares a SAM2 image. `fused`: the
 * division by 255 is put into mean and deviation first, as the fast processors of transformers do.
 */
export type Precision = 'float32' | 'bfloat16' | 'fused'

/** The numbers of a picture, in the dtype that the model takes: fewer bytes on the way to it. Of bfloat16 the bits. */
export type Pixels = Float32Array | Uint16Array
export type PixelType = 'float32' | 'bfloat16'

const newPixels = (type: PixelType, length: number): Pixels =>
  type === 'bfloat16' ? new Uint16Array(length) : new Float32Array(length)

/** What a model of this dtype takes. */
export const pixelTypeOf = (dtype: string): PixelType => (dtype === 'bfloat16' ? dtype : 'float32')

const word = new Uint32Array(1)
const asFloat = new Float32Array(word.buffer)

/** Nearest bfloat16, ties to even, as a float. */
export function bfloat16(value: number): number {
  asFloat[0] = value
  const w = word[0]!
  word[0] = (w + 0x7fff + ((w >>> 16) & 1)) & 0xffff0000
  return asFloat[0]!
}

/** (v / 255 - mean) / std for the 256 sample values of each channel; each step rounded as the tensors' would be. */
function tablesOf(mean: readonly number[], std: readonly number[], precision: Precision): Float32Array[] {
  const round = precision === 'bfloat16' ? bfloat16 : Math.fround
  const usable = (x: readonly number[]) => x.length === 3 && x.every(Number.isFinite)
  const expected = 'three means and three non-zero deviations'
  if (!usable(mean) || !usable(std) || std.includes(0))
    throw new Mismatch({ where: 'normalise', expected, got: { mean, std } })
  if (precision === 'fused') {
    const whole = (x: number) => Math.fround(Math.fround(x) * 255)
    return mean.map((m, c) => Float32Array.from({ length: 256 }, (_, v) => Math.fround(v - whole(m)) / whole(std[c]!)))
  }
  return mean.map((m, c) =>
    Float32Array.from({ length: 256 }, (_, v) => round(round(round(v / 255) - round(m)) / round(std[c]!))),
  )
}

/** Writes a window of the image as [3, height, width] at `offset`. */
function writePlanes(
  image: RgbImage,
  left: number,
  top: number,
  width: number,
  height: number,
  tables: readonly Float32Array[],
  out: Pixels,
  offset: number,
): void {
  // as words: a copy of a float needs no way over a double
  const words = (floats: Float32Array) => new Int32Array(floats.buffer, floats.byteOffset, floats.length)
  const halves = (floats: Float32Array) => words(floats.map(bfloat16)).map((w) => w >>> 16)
  const [red, green, blue] = tables.map(out instanceof Uint16Array ? halves : words) as [
    Int32Array,
    Int32Array,
    Int32Array,
  ]
  const target = out instanceof Uint16Array ? out : words(out)
  const { data } = image
  const plane = width * height
  let o = offset
  for (let y = 0; y < height; y++) {
    let p = ((top + y) * image.width + left) * 3
    for (let x = 0; x < width; x++, p += 3, o++) {
      target[o] = red[data[p]!]!
      target[o + plane] = green[data[p + 1]!]!
      target[o + 2 * plane] = blue[data[p + 2]!]!
    }
  }
}

/** [3, H, W] */
export function normaliseChw(
  image: RgbImage,
  mean: readonly number[] = imagenetMean,
  std: readonly number[] = imagenetStd,
  precision: Precision = 'float32',
  type: PixelType = 'float32',
): Pixels {
  checkImage(image, 'normaliseChw')
  const out = newPixels(type, 3 * image.width * image.height)
  writePlanes(image, 0, 0, image.width, image.height, tablesOf(mean, std, precision), out, 0)
  return out
}

/** Tiles and normalises: what the vision tower takes, [tiles, 3, size, size]. A region prompt points into the last tile. */
export function pixelValues(
  image: RgbImage,
  options: TileOptions & { type?: PixelType } = {},
  mean: readonly number[] = imagenetMean,
  std: readonly number[] = imagenetStd,
): { tiles: number; size: number; data: Pixels } {
  const size = options.tileSize ?? tileDefaults.tileSize
  const { grid, sheet, thumb } = stretch(image, options)
  const tables = tablesOf(mean, std, 'float32')
  const numTiles = tileCount(grid, options)
  const each = 3 * size * size
  const data = newPixels(options.type ?? 'float32', numTiles * each)
  for (let t = 0; t < grid.columns * grid.rows; t++) {
    const left = (t % grid.columns) * size
    const top = Math.floor(t / grid.columns) * size
    writePlanes(sheet, left, top, size, size, tables, data, t * each)
  }
  if (thumb) writePlanes(thumb, 0, 0, size, size, tables, data, (numTiles - 1) * each)
  return { tiles: numTiles, size, data }
}

/** SAM2's input [3, size, size] from the original image: bicubic straight to the square, the aspect is not kept. */
export function samInput(
  image: RgbImage,
  size = 1024,
  precision: Precision = 'float32',
  type: PixelType = 'float32',
): Pixels {
  checkSize(size, size, 'samInput')
  return normaliseChw(resize(image, size, size, 'bicubic'), imagenetMean, imagenetStd, precision, type)
}
