// Plain COCO: instances (regions with a category) and, beside them, captions (sentences about whole images).
import { closeSync, existsSync, openSync, readdirSync, readSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { Mismatch, sha256, stream, streamId } from '../../core/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import { BadRecord, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import { FilePool } from '../files.ts'
import { PackedStrings } from '../strings.ts'
import { findImages, parseObject, readSpans, segmentationMask } from './coco-file.ts'
import { nonEmpty } from './regions.ts'
import { insideFolder } from './shards.ts'

interface Files {
  instances: string
  captions: string | null
  /** Name of the split that the file carries: train2017; empty without one. */
  split: string
}

/** First byte of a JSON file that is not white space. */
export function opensWith(file: string, bracket: '[' | '{'): boolean {
  const head = Buffer.alloc(256)
  const fd = openSync(file, 'r')
  try {
    readSync(fd, head, 0, 256, 0)
  } finally {
    closeSync(fd)
  }
  return head
    .toString('latin1')
    .replace(/^\u00ef\u00bb\u00bf/, '')
    .trimStart()
    .startsWith(bracket)
}

function splitFiles(folder: string, refSplit: string): Files[] {
  if (!existsSync(folder) || !statSync(folder).isDirectory()) return []
  const names = readdirSync(folder)
    .filter((name) => /^instances_.*\.json$/.test(name))
    .sort()
  const splits = names.map((name) => name.slice('instances_'.length, -'.json'.length))
  const wanted = splits.filter((split) => split.startsWith(refSplit))
  return (wanted.length > 0 ? wanted : splits).map((split) => {
    const captions = join(folder, `captions_${split}.json`)
    return {
      instances: join(folder, `instances_${split}.json`),
      captions: existsSync(captions) ? captions : null,
      split,
    }
  })
}

/** The files of a COCO folder: annotations/instances_SPLIT.json, or one file beside its images; null for other folders. */
export function cocoFiles(folder: string, refSplit: string): Files | null {
  const [found] = [...splitFiles(join(folder, 'annotations'), refSplit), ...splitFiles(folder, refSplit)]
  if (found) return found
  for (const name of ['instances.json', '_annotations.coco.json', 'annotations.json']) {
    const instances = join(folder, name)
    if (!existsSync(instances) || !statSync(instances).isFile() || !opensWith(instances, '{')) continue
    const captions = join(folder, 'captions.json')
    return { instances, captions: existsSync(captions) ? captions : null, split: '' }
  }
  return null
}

interface CocoIndex {
  ids: string[]
  captions: string[]
  images: string[]
  /** Per record: offset and length of the annotation, image number, height, width, in turn. */
  places: string
  leftOut: Record<string, number>
}

interface Annotation {
  id: unknown
  image_id: unknown
  category_id?: unknown
  iscrowd?: unknown
  caption?: unknown
  description?: unknown
  text?: unknown
}

interface Place {
  id: string
  image: unknown
  offset: number
  length: number
  text: string
}

/** Collects the three lists of a file, then joins them. */
class IndexBuilder {
  readonly #files: Files
  readonly #config: DataConfig
  readonly #images = new Map<unknown, { number: number; height: number; width: number }>()
  readonly #names: string[] = []
  readonly #categories = new Map<unknown, string>()
  readonly #sentences = new Map<unknown, string[]>()
  readonly #regions: Place[] = []
  readonly #perImage = new Map<unknown, number>()
  readonly #leftOut: Record<string, number> = {}

  constructor(files: Files, config: DataConfig) {
    this.#files = files
    this.#config = config
  }

  async build(pool: FilePool): Promise<CocoIndex> {
    const { instances, captions } = this.#files
    await readSpans<{ id: unknown; name?: unknown }>(instances, 'categories', pool, (c) => {
      this.#categories.set(c.id, String(c.name ?? ''))
    })
    await readSpans<{ id: unknown; file_name: unknown; height: unknown; width: unknown }>(
      instances,
      'images',
      pool,
      (i) => {
        const name = insideFolder(i.file_name, instances, `image ${i.id}: file_name`)
        const size = { height: Number(i.height), width: Number(i.width) }
        this.#images.set(i.id, { number: this.#names.push(name) - 1, ...size })
      },
    )
    await readSpans<Annotation>(instances, 'annotations', pool, (a, offset, length) => this.#add(a, offset, length))
    if (captions !== null) {
      await readSpans<{ image_id: unknown; caption?: unknown }>(captions, 'annotations', pool, (c) => {
        if (typeof c.caption !== 'string') return
        this.#sentences.set(c.image_id, [...(this.#sentences.get(c.image_id) ?? []), c.caption])
      })
    }
    return this.#join()
  }

  #add(a: Annotation, offset: number, length: number): void {
    if (a.iscrowd === 1 || a.iscrowd === true) {
      this.#leave('crowd (iscrowd: a region of many objects)')
      return
    }
    this.#perImage.set(a.image_id, (this.#perImage.get(a.image_id) ?? 0) + 1)
    const own = [a.caption, a.description, a.text].find((t) => typeof t === 'string') as string | undefined
    const text = own ?? this.#categories.get(a.category_id) ?? ''
    this.#regions.push({ id: String(a.id), image: a.image_id, offset, length, text })
  }

  #leave(why: string): void {
    this.#leftOut[why] = (this.#leftOut[why] ?? 0) + 1
  }

  #texts(region: Place): string[] {
    if (this.#config.cocoText === 'category') return [region.text]
    const alone = this.#perImage.get(region.image) === 1
    const sentences = this.#sentences.get(region.image) ?? []
    if (!alone) this.#leave('several objects in the image: its sentences may speak of any')
    else if (sentences.length === 0) this.#leave('no sentence about the image')
    if (!alone || sentences.length === 0) return []
    if (this.#config.textMode === 'all') return sentences
    return [stream(this.#config.seed ?? 0, streamId.data, 'sentence', region.id).pick(sentences)]
  }

  #join(): CocoIndex {
    const out: CocoIndex = { ids: [], captions: [], images: this.#names, places: '', leftOut: this.#leftOut }
    const places: number[] = []
    for (const region of this.#regions) {
      const image = this.#images.get(region.image) ?? { number: -1, height: 0, width: 0 }
      const texts = this.#texts(region)
      for (const [i, text] of texts.entries()) {
        out.ids.push(texts.length > 1 ? `${region.id}/${i}` : region.id)
        out.captions.push(text)
        places.push(region.offset, region.length, image.number, image.height, image.width)
      }
    }
    return { ...out, places: packNumbers(Float64Array.from(places)) }
  }
}

function imageRoots(folder: string, files: Files, config: DataConfig): string[] {
  if (config.imageRoot) return [config.imageRoot]
  const names = files.split === '' ? ['images', '.'] : [files.split, `images/${files.split}`, 'images', '.']
  return [folder, dirname(folder)].flatMap((f) => names.map((name) => join(f, name)))
}

export async function openCoco(folder: string, files: Files, config: DataConfig): Promise<RecordSource> {
  return await FilePool.opening(async (pool) => await openIndexed(folder, files, config, pool))
}

async function openIndexed(folder: string, files: Files, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const { instances, captions } = files
  if (config.cocoText === 'captions' && captions === null) {
    const hint = 'captions_SPLIT.json lies beside instances_SPLIT.json; with cocoText category none is needed'
    throw new Mismatch({ where: folder, field: 'cocoText', expected: 'a file of captions', got: 'none', hint })
  }
  const kept = captions === null ? [instances] : [instances, captions]
  for (const file of kept) pool.watch(file)
  const settings = `${config.cocoText} ${config.textMode} ${config.textMode === 'random' ? (config.seed ?? 0) : ''}`
  const stored = await cachedIndex({ kind: 'coco-1', files: kept, settings }, () =>
    new IndexBuilder(files, config).build(pool),
  )
  const name = files.split === '' ? basename(folder) : `${basename(folder)}-${files.split}`
  const places = unpackNumbers(stored.places)
  const [ids, texts, images] = [stored.ids, stored.captions, stored.images].map((s) => new PackedStrings(s))
  const hint = 'set data.imageRoot to the folder of the images'
  const root = findImages(imageRoots(folder, files, config), stored.images[places[2] ?? 0], folder, hint)

  const region = async (index: number, options?: RegionOptions): Promise<Region> => {
    const where = `${instances}: annotation ${ids!.at(index)}`
    const [offset, length, image, height, width] = places.subarray(5 * index, 5 * index + 5) as unknown as number[]
    if (image! < 0) throw new BadRecord('bad-record', { where, field: 'image_id', expected: 'an image', got: 'none' })
    const { segmentation, category_id } = parseObject(await pool.read(instances, offset!, length!), where)
    return {
      id: `${name}/${ids!.at(index)}`,
      where,
      image: options?.image === false ? null : { path: join(root, images!.at(image!)) },
      mask: segmentationMask(segmentation, height!, width!, where),
      caption: nonEmpty(texts!.at(index), where, config.cocoText === 'category' ? 'category_id' : 'captions'),
      meta: { source: name, category_id, image: images!.at(image!) },
    }
  }
  return {
    name,
    format: `COCO (${basename(instances)}${captions === null ? '' : `, ${basename(captions)}`}; text: ${config.cocoText})`,
    length: stored.ids.length,
    fingerprint: sha256(JSON.stringify([name, settings, stored.ids.length, statSync(instances).size])),
    schema: ['annotations: segmentation, category_id, caption?', `images in ${root}`],
    warnings: [],
    leftOut: stored.leftOut,
    broken: [],
    id: (index) => `${name}/${ids!.at(index)}`,
    region,
    close: () => pool.close(),
  }
}
