import { Mismatch, readJson } from '../core/index.ts'
import { decodeRle, polygonsToMask, type Rle, toDense } from '../mask/index.ts'
import { emptyTarget, type Target } from './target.ts'

export interface CocoImage {
  id: number
  file_name: string
  height: number
  width: number
}

export interface CocoAnnotation {
  id: number
  image_id: number
  iscrowd?: number
  segmentation: unknown
}

export interface Instances {
  file: string
  images: Map<number, CocoImage>
  annotations: Map<number, CocoAnnotation>
}

export function readInstances(file: string): Instances {
  const value = readJson(file) as { images?: unknown; annotations?: unknown } | null
  const list = <T extends { id: number }>(field: 'images' | 'annotations'): Map<number, T> => {
    const rows = value?.[field]
    if (!Array.isArray(rows))
      throw new Mismatch({ where: file, field, expected: 'a list', got: rows === undefined ? 'none' : typeof rows })
    const odd = rows.findIndex((row) => row === null || typeof row !== 'object')
    if (odd >= 0) throw new Mismatch({ where: file, field: `${field}[${odd}]`, expected: 'an object', got: rows[odd] })
    return new Map((rows as T[]).map((row) => [row.id, row]))
  }
  return { file, images: list<CocoImage>('images'), annotations: list<CocoAnnotation>('annotations') }
}

/** More is a damaged file. */
const longestSide = 65_535

/** Sizes and names are checked here, once, because everything after trusts them. */
export function imageOf(instances: Instances, id: number, where: string): CocoImage {
  const image = instances.images.get(id)
  if (!image) throw new Mismatch({ where, field: 'image_id', expected: `an image of ${instances.file}`, got: id })
  const isSide = (n: unknown) => Number.isInteger(n) && (n as number) > 0 && (n as number) <= longestSide
  if (typeof image.file_name !== 'string' || !isSide(image.height) || !isSide(image.width)) {
    const expected = `file_name, height and width of at most ${longestSide} pixels`
    throw new Mismatch({ where: instances.file, field: `image ${id}`, expected, got: image })
  }
  return image
}

function annotationOf(instances: Instances, id: number, where: string): CocoAnnotation {
  const annotation = instances.annotations.get(id)
  if (annotation) return annotation
  throw new Mismatch({ where, field: 'ann_id', expected: `an annotation of ${instances.file}`, got: id })
}

/** The parts of one segmentation as row-major 0/1 maps: polygons, boxes, run lengths, or a list of run lengths. */
function partsOf(segmentation: unknown, { height, width }: CocoImage, where: string): Uint8Array[] {
  const pieces = Array.isArray(segmentation) ? segmentation : [segmentation]
  return pieces.map((piece: unknown, i) => {
    const at = `${where}: segmentation ${i}`
    const mask = Array.isArray(piece) ? polygonsToMask([piece], height, width, at) : decodeRle(piece as Rle, at)
    if (mask.height === height && mask.width === width) return toDense(mask)
    const got = `${mask.height} x ${mask.width}`
    throw new Mismatch({ where: at, field: 'size', expected: `the image's ${height} x ${width}`, got })
  })
}

/** `ids` null: nothing is meant. Crowd regions of a list of annotations are left out, as ReLA does. */
export function annotationTarget(
  instances: Instances,
  image: CocoImage,
  ids: number | readonly number[] | null,
  where: string,
): Target {
  const target = emptyTarget(image.height, image.width, ids === null)
  const { parts } = target
  for (const id of [ids ?? []].flat()) {
    const annotation = annotationOf(instances, id, where)
    if (Array.isArray(ids) && annotation.iscrowd) continue
    const sum = new Uint8Array(parts.length) // a byte wraps at 256, as numpy's uint8 does
    for (const part of partsOf(annotation.segmentation, image, `${instances.file}: annotation ${id}`)) {
      for (let q = 0; q < sum.length; q++) sum[q] = sum[q]! + part[q]!
    }
    for (let q = 0; q < sum.length; q++) parts[q] = parts[q]! | sum[q]!
  }
  return target
}
