// Shared by COCO and RefCOCO: elements of the JSON file by their offset, segmentations as masks, image folders, the source of the records.
import { existsSync, statSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { type JsonObject, Mismatch, parseJson, sha256 } from '../../core/index.ts'
import { decodeRle, type Mask, polygonsToMask, type Rle } from '../../mask/index.ts'
import { packNumbers, unpackNumbers } from '../cache.ts'
import { asBadRecord, BadRecord, type RecordSource } from '../example.ts'
import type { FilePool } from '../files.ts'
import { jsonSpans } from '../json-spans.ts'
import { PackedStrings } from '../strings.ts'
import { nonEmpty } from './regions.ts'
import { insideFolder } from './shards.ts'

export function parseObject(bytes: Buffer, where: string): JsonObject {
  const value = parseJson(bytes.toString('utf8'), where, 'JSON')
  if (typeof value === 'object' && value !== null) return value as JsonObject
  throw new Mismatch({ where, expected: 'a JSON object', got: value })
}

/** Calls `take` with every element of one list of a file, one at a time. */
export async function readSpans(
  file: string,
  member: string,
  pool: FilePool,
  take: (value: JsonObject, at: number, length: number) => void,
): Promise<void> {
  for await (const { offset, length } of jsonSpans(file, member)) {
    take(parseObject(await pool.read(file, offset, length), `${file}: byte ${offset}`), offset, length)
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

/** Records of annotations, as the cache stores them. */
export interface AnnotationIndex {
  ids: string[]
  captions: string[]
  images: string[]
  /** Per record: offset and length of the annotation, image number, height, width, in turn. */
  places: string
}

/** Collects the images of a file, then records that refer to them. */
export class AnnotationIndexer {
  readonly #images = new Map<unknown, { number: number; height: number; width: number }>()
  readonly #names: string[] = []
  readonly #ids: string[] = []
  readonly #captions: string[] = []
  readonly #places: number[] = []

  async readImages(file: string, pool: FilePool): Promise<void> {
    await readSpans(file, 'images', pool, ({ id, file_name, height, width }) => {
      const number = this.#names.push(insideFolder(file_name, file, `image ${id}: file_name`)) - 1
      this.#images.set(id, { number, height: Number(height), width: Number(width) })
    })
  }

  add(id: string, caption: string, offset: number, length: number, imageId: unknown): void {
    const { number, height, width } = this.#images.get(imageId) ?? { number: -1, height: 0, width: 0 }
    this.#ids.push(id)
    this.#captions.push(caption)
    this.#places.push(offset, length, number, height, width)
  }

  index(): AnnotationIndex {
    const places = packNumbers(this.#places)
    return { ids: this.#ids, captions: this.#captions, images: this.#names, places }
  }
}

interface AnnotationSource extends Pick<RecordSource, 'name' | 'format' | 'leftOut'> {
  /** The file of the annotations. */
  instances: string
  index: AnnotationIndex
  /** What the records depend on, for the fingerprint. */
  settings: string
  schema: readonly string[]
  /** Folders where the images may be, and a hint if they are in none of them. */
  folder: string
  roots: readonly string[]
  hint: string
  idOf(stored: string): string
  whereOf(stored: string): string
  /** Which field is empty if a record has no text, and what an annotation without an image lacks. */
  textField: string
  missing: string
}

export function annotationSource(from: AnnotationSource, pool: FilePool): RecordSource {
  const { name, instances, index } = from
  const places = unpackNumbers(index.places)
  const ids = new PackedStrings(index.ids)
  const captions = new PackedStrings(index.captions)
  const images = new PackedStrings(index.images)
  const root = findImages(from.roots, index.images[places[2] ?? 0], from.folder, from.hint)
  return {
    name,
    format: from.format,
    length: ids.length,
    fingerprint: sha256(JSON.stringify([name, from.settings, ids.length, statSync(instances).size])),
    schema: [...from.schema, `images in ${root}`],
    leftOut: from.leftOut,
    id: (i) => from.idOf(ids.at(i)),
    region: async (i, options) => {
      const where = from.whereOf(ids.at(i))
      const [offset, length, image, height, width] = places.subarray(5 * i, 5 * i + 5) as unknown as number[]
      if (length === 0 || image! < 0) {
        const field = length === 0 ? 'ann_id' : 'image_id'
        throw new BadRecord('bad-record', { where, field, expected: from.missing, got: 'none' })
      }
      const { segmentation, category_id } = parseObject(await pool.read(instances, offset!, length!), where)
      const file = images.at(image!)
      return {
        id: from.idOf(ids.at(i)),
        where,
        image: options?.image === false ? null : { path: join(root, file) },
        mask: segmentationMask(segmentation, height!, width!, where),
        caption: nonEmpty(captions.at(i), where, from.textField),
        meta: { source: name, category_id, image: file },
      }
    },
  }
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

/** The first of the folders that contains the first image, else the first that exists. */
function findImages(tried: readonly string[], first: string | undefined, folder: string, hint: string): string {
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
