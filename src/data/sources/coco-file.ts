// What the readers of COCO's JSON share: elements found by their place in the file, segmentations as masks, image folders.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
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

/** The first of the folders that holds the first image, else the first that exists. */
export function findImages(tried: readonly string[], first: string | undefined, folder: string, hint: string): string {
  const found = tried.find((f) => first !== undefined && existsSync(join(f, first))) ?? tried.find((f) => existsSync(f))
  if (found !== undefined) return found
  throw new Mismatch({ where: folder, field: 'images', expected: tried.join(' or '), got: 'none of them', hint })
}
