// RefCOCO, RefCOCO+, RefCOCOg: instances.json (COCO) joined with refs(...).p, a pickle read as data, or the same as JSON.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { readPickle } from '../../checkpoint/index.ts'
import { Mismatch, readJson, regularFile, sha256, stream, streamId } from '../../core/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import { BadRecord, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import { FilePool } from '../files.ts'
import { PackedStrings } from '../strings.ts'
import { findImages, parseObject, readSpans, refImageFolders, segmentationMask } from './coco-file.ts'
import { nonEmpty } from './regions.ts'
import { insideFolder } from './shards.ts'

interface Ref {
  ref_id: number
  ann_id: number
  split: string
  sentences: { sent_id: number; raw: string; sent: string }[]
}

interface RefIndex {
  ids: string[]
  captions: string[]
  images: string[]
  /** Per record: offset and length of the annotation, image number, height, width, in turn. */
  places: string
  /** Splits of the file with their number of refs. */
  splits: Record<string, number>
}

const refsName = /^refs.*\.(p|pickle|json)$/

export function isRefCoco(folder: string): boolean {
  return existsSync(join(folder, 'instances.json')) && readdirSync(folder).some((name) => refsName.test(name))
}

/** `refs(umd).p` before `refs(google).p`: umd is the one with train, val and test. */
function refsFile(folder: string): string {
  const names = readdirSync(folder)
    .filter((name) => refsName.test(name))
    .sort()
    .reverse()
  return join(folder, names[0]!)
}

function readRefs(file: string): Ref[] {
  regularFile(file)
  const value = file.endsWith('.json') ? readJson(file) : readPickle(readFileSync(file), file)
  if (!Array.isArray(value)) throw new Mismatch({ where: file, expected: 'a list of refs', got: typeof value })
  const wrong = value.findIndex((ref) => !isRef(ref))
  if (wrong < 0) return value as Ref[]
  const expected = '{ref_id, ann_id, split, sentences: [{sent_id, raw, sent}]}'
  throw new Mismatch({ where: file, field: `ref ${wrong}`, expected, got: describeFields(value[wrong]) })
}

function isRef(value: unknown): value is Ref {
  const ref = (value ?? {}) as Partial<Ref>
  const sentence = (s: Partial<Ref['sentences'][number]> | null) =>
    typeof s === 'object' && s !== null && typeof s.raw === 'string' && typeof s.sent === 'string' && isId(s.sent_id)
  return (
    isId(ref.ref_id) &&
    isId(ref.ann_id) &&
    typeof ref.split === 'string' &&
    Array.isArray(ref.sentences) &&
    ref.sentences.every(sentence)
  )
}

function isId(value: unknown): boolean {
  return typeof value === 'string' || Number.isFinite(value)
}

function describeFields(value: unknown): string {
  return typeof value === 'object' && value !== null ? `fields ${Object.keys(value).join(', ')}` : typeof value
}

async function buildIndex(instances: string, refs: string, config: DataConfig, pool: FilePool): Promise<RefIndex> {
  const all = readRefs(refs)
  const splits: Record<string, number> = {}
  for (const ref of all) splits[ref.split] = (splits[ref.split] ?? 0) + 1
  const wanted = all.filter((ref) => ref.split === config.refSplit)
  const used = new Set(wanted.map((ref) => ref.ann_id))
  const annotations = new Map<number, [offset: number, length: number, image: number]>()
  await readSpans<{ id: number; image_id: number }>(instances, 'annotations', pool, (a, offset, length) => {
    if (used.has(a.id)) annotations.set(a.id, [offset, length, a.image_id])
  })
  const images = new Map<number, { number: number; height: number; width: number }>()
  const names: string[] = []
  await readSpans<{ id: number; file_name: string; height: number; width: number }>(instances, 'images', pool, (i) => {
    const name = insideFolder(i.file_name, instances, `image ${i.id}: file_name`)
    images.set(i.id, { number: names.push(name) - 1, height: Number(i.height), width: Number(i.width) })
  })
  const name = basename(dirname(instances))
  const out: RefIndex = { ids: [], captions: [], images: names, places: '', splits }
  const places: number[] = []
  for (const ref of wanted) {
    const [offset, length, imageId] = annotations.get(ref.ann_id) ?? [0, 0, -1]
    const image = images.get(imageId) ?? { number: -1, height: 0, width: 0 }
    for (const sentence of chosen(ref, config)) {
      out.ids.push(`${name}/${ref.ref_id}/${sentence.sent_id}`)
      out.captions.push(config.refSplit === 'train' ? trainingText(sentence.raw) : sentence.sent)
      places.push(offset, length, image.number, image.height, image.width)
    }
  }
  return { ...out, places: packNumbers(Float64Array.from(places)) }
}

function chosen(ref: Ref, config: DataConfig): Ref['sentences'] {
  if (config.textMode === 'all' || ref.sentences.length === 0) return ref.sentences
  return [stream(config.seed ?? 0, streamId.data, 'sentence', ref.ref_id).pick(ref.sentences)]
}

/** As Sa2VA trains on it: lower case, one full stop at the end removed. */
function trainingText(raw: string): string {
  const text = raw.trim().toLowerCase()
  return text.endsWith('.') ? text.slice(0, -1) : text
}

function imageFolder(folder: string, first: string | undefined, config: DataConfig): string {
  const tried = config.imageRoot ? [config.imageRoot] : refImageFolders(folder)
  return findImages(tried, first, folder, 'set data.imageRoot to the folder of COCO train2014 images')
}

export async function openRefCoco(folder: string, config: DataConfig): Promise<RecordSource> {
  return await FilePool.opening(async (pool) => await openRefs(folder, config, pool))
}

async function openRefs(folder: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const instances = join(folder, 'instances.json')
  const refs = refsFile(folder)
  pool.watch(instances)
  const settings = `${config.refSplit} ${config.textMode} ${config.textMode === 'random' ? (config.seed ?? 0) : ''}`
  const stored = await cachedIndex({ kind: 'refcoco-2', files: [instances, refs], settings }, () =>
    buildIndex(instances, refs, config, pool),
  )
  const known = Object.entries(stored.splits).map(([split, n]) => `${split} ${n}`)
  if (stored.ids.length === 0) {
    throw new Mismatch({ where: refs, field: 'refSplit', expected: `one of ${known.join(', ')}`, got: config.refSplit })
  }
  const places = unpackNumbers(stored.places)
  const ids = new PackedStrings(stored.ids)
  const captions = new PackedStrings(stored.captions)
  const images = new PackedStrings(stored.images)
  const root = imageFolder(folder, stored.images[places[2]!], config)

  const region = async (index: number, options?: RegionOptions): Promise<Region> => {
    const where = `${refs}: ${ids.at(index)}`
    const [offset, length, image, height, width] = places.subarray(5 * index, 5 * index + 5) as unknown as number[]
    if (length === 0 || image! < 0) {
      const field = length === 0 ? 'ann_id' : 'image_id'
      throw new BadRecord('bad-record', { where, field, expected: `an entry of ${instances}`, got: 'none' })
    }
    const { segmentation, category_id } = parseObject(await pool.read(instances, offset!, length!), where)
    const path = join(root, images.at(image!))
    return {
      id: ids.at(index),
      where,
      image: options?.image === false ? null : { path },
      mask: segmentationMask(segmentation, height!, width!, where),
      caption: nonEmpty(captions.at(index), where, 'sentences'),
      meta: { source: basename(folder), category_id, image: images.at(image!) },
    }
  }
  return {
    name: basename(folder),
    format: `RefCOCO style (${basename(refs)}, split ${config.refSplit})`,
    length: ids.length,
    fingerprint: sha256(JSON.stringify([basename(folder), settings, ids.length, statSync(instances).size])),
    schema: [`splits (refs): ${known.join(', ')}`, `images in ${root}`],
    warnings: [],
    leftOut: {},
    broken: [],
    id: (index) => ids.at(index),
    region,
    close: () => pool.close(),
  }
}
