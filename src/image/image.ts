import { Mismatch } from '../core/index.ts'

/** 8-bit RGB, row-major, channels last: data[(y * width + x) * 3 + c]. */
export interface RgbImage {
  readonly width: number
  readonly height: number
  readonly data: Uint8Array
}

/** The same with straight alpha: four bytes a pixel. */
export interface RgbaImage {
  readonly width: number
  readonly height: number
  readonly data: Uint8Array
}

export function checkSize(width: number, height: number, where: string): void {
  const whole = Number.isInteger(width) && Number.isInteger(height)
  if (whole && width > 0 && height > 0 && width * height < 2 ** 29) return
  throw new Mismatch({
    where,
    field: 'size',
    expected: 'width and height of at least 1, below 2^29 pixels together',
    got: [width, height],
  })
}

/** Throws unless the buffer holds what width and height say. */
export function checkImage(image: RgbImage, where: string): void {
  checkSize(image.width, image.height, where)
  const expected = image.width * image.height * 3
  if (image.data.length !== expected)
    throw new Mismatch({
      where,
      field: 'data',
      expected: `${image.width} x ${image.height} x 3 = ${expected} bytes`,
      got: image.data.length,
    })
}
