import sharp, { type Metadata, type Sharp } from 'sharp'
import { Mismatch, messageOf } from '../core/index.ts'
import { checkImage, type RgbaImage, type RgbImage } from './image.ts'

/** What the header says. `width` and `height` as stored; `turned*` after the EXIF orientation. */
interface ImageInfo {
  readonly format: string
  readonly width: number
  readonly height: number
  /** EXIF orientation 1 to 8; 1 = as stored. */
  readonly orientation: number
  readonly turnedWidth: number
  readonly turnedHeight: number
}

const formats = ['jpeg', 'png', 'webp']

/** Known from the header, before a pixel is decoded: 300 MB as RGB. */
export const maxPixels = 100_000_000

function unreadable(where: string, error: unknown): Mismatch {
  const expected = 'a complete JPEG, PNG or WebP file'
  const [got] = messageOf(error).split('\n') // the library says the same several times
  return new Mismatch({ where, expected, got }, { cause: error })
}

/** Colour profiles are not applied: the reference (Pillow) takes the stored numbers. */
function open(bytes: Uint8Array): Sharp {
  return sharp(bytes, { ignoreIcc: true, failOn: 'error', limitInputPixels: maxPixels })
}

async function readMetadata(bytes: Uint8Array, where: string): Promise<Metadata> {
  let metadata: Metadata
  try {
    metadata = await sharp(bytes, { limitInputPixels: false }).metadata() // reads the header alone
  } catch (error) {
    throw unreadable(where, error)
  }
  if (!formats.includes(metadata.format ?? ''))
    throw new Mismatch({ where, expected: 'JPEG, PNG or WebP', got: metadata.format ?? 'an unknown format' })
  const { width, height } = metadata
  if (width * height <= maxPixels) return metadata
  const got = `${width} x ${height}`
  throw new Mismatch({ where, field: 'size', expected: `at most ${maxPixels / 1e6} megapixels`, got })
}

function infoOf(metadata: Metadata): ImageInfo {
  const { format, width, height } = metadata
  const orientation = metadata.orientation ?? 1
  const sideways = orientation >= 5 && orientation <= 8
  return {
    format: format ?? '',
    width,
    height,
    orientation,
    turnedWidth: sideways ? height : width,
    turnedHeight: sideways ? width : height,
  }
}

/** Reads the header alone. */
export async function imageInfo(bytes: Uint8Array, where = 'image'): Promise<ImageInfo> {
  return infoOf(await readMetadata(bytes, where))
}

/** Pillow's CMYK to RGB: each ink darkens what black leaves; products over 255 rounded without division. */
function rgbOfCmyk(cmyk: Uint8Array): Uint8Array {
  const out = new Uint8Array((cmyk.length / 4) * 3)
  for (let i = 0, o = 0; i < cmyk.length; i += 4) {
    const light = 255 - cmyk[i + 3]!
    for (let c = 0; c < 3; c++) {
      const product = cmyk[i + c]! * light + 128
      out[o++] = light - ((product + (product >> 8)) >> 8)
    }
  }
  return out
}

async function decodePixels(bytes: Uint8Array, metadata: Metadata, orient: boolean, where: string): Promise<RgbImage> {
  const cmyk = metadata.space === 'cmyk'
  try {
    const source = orient ? open(bytes).autoOrient() : open(bytes)
    const converted = cmyk
      ? source.pipelineColourspace('cmyk').toColourspace('cmyk')
      : source.removeAlpha().toColourspace('srgb')
    const { data, info } = await converted.raw({ depth: 'uchar' }).toBuffer({ resolveWithObject: true })
    const plain = new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    return { width: info.width, height: info.height, data: cmyk ? rgbOfCmyk(plain) : plain }
  } catch (error) {
    throw unreadable(where, error)
  }
}

/**
 * JPEG, PNG or WebP as 8-bit RGB, pixel for pixel as Pillow's `convert('RGB')`: grey is repeated, a palette looked up, alpha
 * dropped without blending, CMYK by Pillow's formula. Two differences: the EXIF orientation is applied (as `exif_transpose`)
 * unless `orient` is false, and 16-bit samples give their high byte where Pillow clips 16-bit grey at 255.
 */
export async function decodeImage(
  bytes: Uint8Array,
  where = 'image',
  options: { orient?: boolean } = {},
): Promise<RgbImage> {
  const metadata = await readMetadata(bytes, where)
  const image = await decodePixels(bytes, metadata, options.orient ?? true, where)
  checkImage(image, where)
  return image
}

/** Decodes so that the image has the mask's size: turned by EXIF if that fits, else as stored, else a Mismatch. */
export async function decodeImageFor(
  bytes: Uint8Array,
  mask: { readonly height: number; readonly width: number },
  where = 'image',
): Promise<RgbImage> {
  const metadata = await readMetadata(bytes, where)
  const info = infoOf(metadata)
  const turnedFits = info.turnedWidth === mask.width && info.turnedHeight === mask.height
  const storedFits = info.width === mask.width && info.height === mask.height
  if (!turnedFits && !storedFits)
    throw new Mismatch({
      where,
      field: 'size',
      expected: `the mask's ${mask.width} x ${mask.height}`,
      got: `${info.width} x ${info.height}, EXIF orientation ${info.orientation}`,
      hint: 'size-mismatch',
    })
  return decodePixels(bytes, metadata, turnedFits, where)
}

/** The same with straight alpha, four bytes a pixel: for cut-out objects. */
export async function decodeRgba(bytes: Uint8Array, where = 'image'): Promise<RgbaImage> {
  await readMetadata(bytes, where)
  try {
    const source = open(bytes).toColourspace('srgb').ensureAlpha()
    const { data, info } = await source.raw({ depth: 'uchar' }).toBuffer({ resolveWithObject: true })
    return { width: info.width, height: info.height, data }
  } catch (error) {
    throw unreadable(where, error)
  }
}

/** PNG bytes of an image. */
export async function encodePng(image: RgbImage): Promise<Uint8Array> {
  checkImage(image, 'encodePng')
  const { width, height, data } = image
  return sharp(data, { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer()
}
