import { Mismatch } from '../core/index.ts'

/** 8-bit RGB, row-major, channels last: data[(y * width + x) * 3 + c]. */
export interface RgbImage {
  readonly width: number
  readonly height: number
  readonly data: Uint8Array
}

/** The same with straight alpha: four bytes a pixel. */
export type RgbaImage = RgbImage

export function checkSize(width: number, height: number, where: string): void {
  const whole = Number.isInteger(width) && Number.isInteger(height)
  if (whole && width > 0 && height > 0 && width * height < 2 ** 29) return
  const expected = 'width and height of at least 1, below 2^29 pixels together'
  throw new Mismatch({ where, field: 'size', expected, got: [width, height] })
}

/** Throws unless the buffer holds what width and height say. */
export function checkImage(image: RgbImage, where: string): void {
  checkSize(image.width, image.height, where)
  const { width, height, data } = image
  const bytes = width * height * 3
  if (data.length === bytes) return
  throw new Mismatch({ where, field: 'data', expected: `${width} x ${height} x 3 = ${bytes} bytes`, got: data.length })
}
