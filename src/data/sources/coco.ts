// Plain COCO: instances (regions with a category) and, beside them, captions (sentences about whole images).
import { existsSync, readSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { type JsonObject, Mismatch, namesIn, pushTo, stream, streamId, withOpen } from '../../core/index.ts'
import { cachedIndex } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import type { RecordSource } from '../example.ts'
import type { FilePool } from '../files.ts'
import { type AnnotationIndex, AnnotationIndexer, annotationSource, readSpans } from './coco-file.ts'

interface Files {
  instances: string
  captions: string | null
  /** Name of the split that the file carries: train2017; empty without one. */
  split: string
}

/** Whether the first character of a JSON file that is not white space is this bracket. */
export function opensWith(file: string, bracket: '[' | '{'): boolean {
  const head = Buffer.alloc(256)
  withOpen(file, (fd) => readSync(fd, head, 0, 256, 0))
  return head
    .toString('latin1')
    .replace(/^\u00ef\u00bb\u00bf/, '')
    .trimStart()
    .startsWith(bracket)
}

function splitFiles(folder: string, refSplit: string): Files[] {
  const names = namesIn(folder, /^instances_.*\.json$/)
  const splits = names.map((name) => name.slice('instances_'.length, -'.json'.length))
  const wanted = splits.filter((split) => split.startsWith(refSplit))
  return (wanted.length > 0 ? wanted : splits).map((split) => filesOf(folder, `instances_${split}.json`, split))
}

function filesOf(folder: string, instances: string, split: string): Files {
  const captions = join(folder, split === '' ? 'captions.json' : `captions_${split}.json`)
  return { instances: join(folder, instances), captions: existsSync(captions) ? captions : null, split }
}

/** The files of a COCO folder: annotations/instances_SPLIT.json, or one file beside its images; null for other folders. */
export function cocoFiles(folder: string, refSplit: string): Files | null {
  const [found] = [...splitFiles(join(folder, 'annotations'), refSplit), ...splitFiles(folder, refSplit)]
  if (found) return found
  for (const name of ['instances.json', '_annotations.coco.json', 'annotations.json']) {
    const instances = join(folder, name)
    if (!existsSync(instances) || !statSync(instances).isFile()) continue
    // annotations.json is also the name of Sa2VA's list
    if (name !== 'annotations.json' || opensWith(instances, '{')) return filesOf(folder, name, '')
  }
  return null
}

type CocoIndex = AnnotationIndex & { leftOut: Record<string, number> }

interface CocoRegion {
  id: string
  image: unknown
  offset: number
  length: number
  text: string
}

/** Collects categories, images and annotations of a file, then joins them. */
class IndexBuilder {
  readonly #files: Files
  readonly #config: DataConfig
  readonly #indexer = new AnnotationIndexer()
  readonly #categories = new Map<unknown, string>()
  readonly #sentences = new Map<unknown, string[]>()
  readonly #regions: CocoRegion[] = []
  readonly #perImage = new Map<unknown, number>()
  readonly #leftOut: Record<string, number> = {}

  constructor(files: Files, config: DataConfig) {
    this.#files = files
    this.#config = config
  }

  async build(pool: FilePool): Promise<CocoIndex> {
    const { instances, captions } = this.#files
    await readSpans(instances, 'categories', pool, (c) => {
      this.#categories.set(c.id, String(c.name ?? ''))
    })
    await this.#indexer.readImages(instances, pool)
    await readSpans(instances, 'annotations', pool, (a, offset, length) => this.#add(a, offset, length))
    if (captions !== null) {
      await readSpans(captions, 'annotations', pool, (c) => {
        if (typeof c.caption === 'string') pushTo(this.#sentences, c.image_id, c.caption)
      })
    }
    return this.#join()
  }

  #add(a: JsonObject, offset: number, length: number): void {
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

  #texts(region: CocoRegion): string[] {
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
    for (const region of this.#regions) {
      const texts = this.#texts(region)
      for (const [i, text] of texts.entries()) {
        const id = texts.length > 1 ? `${region.id}/${i}` : region.id
        this.#indexer.add(id, text, region.offset, region.length, region.image)
      }
    }
    return { ...this.#indexer.index(), leftOut: this.#leftOut }
  }
}

function imageRoots(folder: string, files: Files, config: DataConfig): string[] {
  if (config.imageRoot) return [config.imageRoot]
  const names = files.split === '' ? ['images', '.'] : [files.split, `images/${files.split}`, 'images', '.']
  return [folder, dirname(folder)].flatMap((f) => names.map((name) => join(f, name)))
}

export async function openCoco(
  folder: string,
  files: Files,
  config: DataConfig,
  pool: FilePool,
): Promise<RecordSource> {
  const { instances, captions } = files
  if (config.cocoText === 'captions' && captions === null) {
    const hint = 'captions_SPLIT.json lies beside instances_SPLIT.json; with cocoText category none is needed'
    throw new Mismatch({ where: folder, field: 'cocoText', expected: 'a file of captions', got: 'none', hint })
  }
  const kept = captions === null ? [instances] : [instances, captions]
  for (const file of kept) pool.watch(file)
  const settings = `${config.cocoText} ${config.textMode} ${config.textMode === 'random' ? (config.seed ?? 0) : ''}`
  const index = await cachedIndex({ kind: 'coco-1', files: kept, settings }, () =>
    new IndexBuilder(files, config).build(pool),
  )
  const name = files.split === '' ? basename(folder) : `${basename(folder)}-${files.split}`
  const source = {
    name,
    format: `COCO (${kept.map((file) => basename(file)).join(', ')}; text: ${config.cocoText})`,
    instances,
    index,
    settings,
    schema: ['annotations: segmentation, category_id, caption?'],
    leftOut: index.leftOut,
    folder,
    roots: imageRoots(folder, files, config),
    hint: 'set data.imageRoot to the folder of the images',
    idOf: (stored: string) => `${name}/${stored}`,
    whereOf: (stored: string) => `${instances}: annotation ${stored}`,
    textField: config.cocoText === 'category' ? 'category_id' : 'captions',
    missing: 'an image',
  }
  return annotationSource(source, pool)
}
