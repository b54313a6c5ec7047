// What the readers of COCO's JSON share: elements found by their place in the file, segmentations as masks, image folders.
import { existsSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { Mismatch, messageOf } from '../../core/index.ts'
import { decodeRle, type Mask, polygonsToMask, type Rle } from '../../mask/index.ts'
import { asBadRecord, BadRecord } from '../example.ts'
import type { FilePool } from '../files.ts'
import { jsonSpans } from '../json-spans.ts'

export type Fields = Record<string, unknown>

export function parseObject(bytes: Buffer, where: string): Fields {
  let value: unknown
  try {
    value = JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw new Mismatch({ where, expected: 'JSON', got: messageOf(error) }, { cause: error })
  }
  if (typeof value === 'object' && value !== null) return value as Fields
  throw new Mismatch({ where, expected: 'a JSON object', got: value })
}

/** Calls `take` with every element of one member of a file, one at a time. */
export async function readSpans<T>(
  file: string,
  member: string,
  pool: FilePool,
  take: (value: T, at: number, length: number) => void,
): Promise<void> {
  for await (const { offset, length } of jsonSpans(file, member)) {
    take(parseObject(await pool.read(file, offset, length), `${file}: byte ${offset}`) as T, offset, length)
  }
}

/** Polygons (one object may have several parts), or runs. */
export function segmentationMask(segmentation: unknown, height: number, width: number, where: string): Mask {
  try {
    if (!Array.isArray(segmentation)) return decodeRle(segmentation as Rle, where)
    if (segmentation.length > 0) return polygonsToMask(segmentation as number[][], height, width, where)
  } catch (error) {
    throw asBadRecord(error, 'mask-unreadable', where, 'segmentation')
  }
  throw new BadRecord('no-mask', { where, field: 'segmentation', expected: 'polygons or RLE', got: 'an empty list' })
}

const train2014 = [
  'glamm_data/images/coco2014/train2014',
  'images/coco2014/train2014',
  'coco2014/train2014',
  'coco/train2014',
  'train2014',
  'images/train2014',
  'images',
]

/** Where the COCO images of a RefCOCO folder can be: below it, and up to two folders above it (ROOT/ref_seg/refcoco). */
export function refImageFolders(folder: string): string[] {
  const bases = ['.', '..', '../..'].map((up) => resolve(folder, up))
  return bases.flatMap((base) => train2014.map((name) => join(base, name)))
}

/** The first of the folders that holds the first image, else the first that exists. */
export function findImages(tried: readonly string[], first: string | undefined, folder: string, hint: string): string {
  const found = tried.find((f) => first !== undefined && existsSync(join(f, first))) ?? tried.find((f) => existsSync(f))
  if (found !== undefined) return found
  const expected = first === undefined ? 'a folder of images' : `a folder with ${first}`
  throw new Mismatch({ where: folder, field: 'images', expected, got: `none: ${triedText(tried, folder)}`, hint })
}

const maxTried = 3

/** The first places as seen from `folder`, and how many more there are. */
function triedText(tried: readonly string[], folder: string): string {
  const names = tried.slice(0, maxTried).map((path) => {
    const name = relative(folder, path)
    return name.startsWith('../../..') ? path : name || '.'
  })
  const more = tried.length - names.length
  return `there is no ${names.join(', ')}${more > 0 ? ` or ${more} more places below and above it` : ''}`
}
