// An image as Sa2VA takes it, without any weight: may run in a decoding thread.
import { type Pixels, type PixelType, type Precision, pixelValues, type RgbImage, samInput } from '../../image/index.ts'

export interface ImageInput {
  tiles: number
  size: number
  pixels: Pixels // [tiles, 3, size, size]
  samPixels: Pixels // [1, 3, sam, sam], from the original image
  height: number
  width: number
}

export interface PrepareSettings {
  tileSize: number
  minTiles: number
  maxTiles: number
  thumbnail: boolean
  /** Side of SAM2's picture. */
  samSize: number
  precision: Precision
  /** Default float32. */
  type?: PixelType
}

export const module = import.meta.url

export function prepare(image: RgbImage, { samSize, precision, ...tiling }: PrepareSettings): ImageInput {
  const { tiles, size, data } = pixelValues(image, tiling)
  const samPixels = samInput(image, samSize, precision, tiling.type)
  return { tiles, size, pixels: data, samPixels, height: image.height, width: image.width }
}
