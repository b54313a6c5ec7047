import { assert, Mismatch } from '../core/index.ts'
import { decodeImageFor, type Preparation, type Prepare, type RgbImage } from '../image/index.ts'
import { maskArea } from '../mask/index.ts'
import { asBadRecord, BadRecord, type Example, type RecordRules, type Region } from './example.ts'
import { readStored } from './files.ts'

const smallest = 10 // px; a smaller picture has no region worth describing

/** Checks that are possible before the image is decoded. */
export function checkRegion(region: Region, rules: RecordRules = {}): void {
  const { mask, where } = region
  if (maskArea(mask) === 0 && !rules.usesEmpty?.(region)) {
    throw new BadRecord('empty-mask', { where, field: 'mask', expected: 'at least one pixel inside', got: 'none' })
  }
  if (Math.min(mask.width, mask.height) < smallest) {
    const got = `${mask.width} x ${mask.height}`
    throw new BadRecord('image-too-small', { where, field: 'image', expected: `at least ${smallest} px a side`, got })
  }
  rules.check?.(region)
  const other = region.extraMasks?.find((m) => m.width !== mask.width || m.height !== mask.height)
  if (!other) return
  const expected = `the first mask's ${mask.width} x ${mask.height}`
  throw new BadRecord('size-mismatch', { where, field: 'mask', expected, got: `${other.width} x ${other.height}` })
}

const readable = 'a readable file'

export async function readImageFile(path: string, where: string): Promise<Uint8Array> {
  try {
    return await readStored(path)
  } catch (error) {
    // the system's message for a missing file already names the path
    const got = error instanceof Mismatch && error.info.expected === readable ? error.info.got : error
    throw new BadRecord('image-missing', { where, field: 'image', expected: readable, got }, { cause: error })
  }
}

export interface DecodeJob {
  /** Pixels come this way only to be prepared. */
  source: { bytes: Uint8Array } | { rgb: RgbImage }
  height: number
  width: number
  where: string
}

export interface Decoded {
  image: RgbImage
  prepared?: object
}

/** Prepares images as a model wants them. */
export async function preparer({ module, settings }: Preparation): Promise<(image: RgbImage) => object> {
  const { prepare } = (await import(module)) as { prepare: Prepare }
  return (image) => prepare(image, settings)
}

/** The image at the mask's size; the only heavy work of a record, so the only one that moves to a worker. */
export async function decodeJob(job: DecodeJob): Promise<RgbImage> {
  try {
    return 'rgb' in job.source ? job.source.rgb : await decodeImageFor(job.source.bytes, job, job.where)
  } catch (error) {
    const sizes = error instanceof Mismatch && error.info.hint === 'size-mismatch'
    throw asBadRecord(error, sizes ? 'size-mismatch' : 'image-unreadable', job.where, 'image')
  }
}

/** A region decoded by `decode` (here, or in a worker) and checked. */
export async function toExample(
  region: Region,
  decode: (job: DecodeJob) => Promise<Decoded> = async (job) => ({ image: await decodeJob(job) }),
  rules: RecordRules = {},
): Promise<Example> {
  checkRegion(region, rules)
  const { id, image, mask, caption, category, extraMasks, meta, where } = region
  assert(image, 'a region read without its image is not decoded')
  const source = 'path' in image ? { bytes: await readImageFile(image.path, where) } : image
  const decoded = await decode({ source, height: mask.height, width: mask.width, where })
  const example: Example = { id, ...decoded, mask, caption, meta }
  if (category) example.category = category
  if (extraMasks) example.extraMasks = extraMasks
  return example
}
