// RefCOCO, RefCOCO+, RefCOCOg: instances.json (COCO) joined with refs(...).p, a pickle read as data, or the same as JSON.
import { existsSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { readPickle } from '../../checkpoint/index.ts'
import { Mismatch, namesIn, readBytes, readJson, regularFile, stream, streamId } from '../../core/index.ts'
import { cachedIndex } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import type { RecordSource } from '../example.ts'
import type { FilePool } from '../files.ts'
import { type AnnotationIndex, AnnotationIndexer, annotationSource, readSpans, refImageFolders } from './coco-file.ts'

interface Ref {
  ref_id: number
  ann_id: number
  split: string
  sentences: { sent_id: number; raw: string; sent: string }[]
}

/** Also the splits of the file with their number of refs. */
type RefIndex = AnnotationIndex & { splits: Record<string, number> }

const refsName = /^refs.*\.(p|pickle|json)$/

export function isRefCoco(folder: string): boolean {
  return existsSync(join(folder, 'instances.json')) && namesIn(folder, refsName).length > 0
}

function readRefs(file: string): Ref[] {
  regularFile(file)
  const value = file.endsWith('.json') ? readJson(file) : readPickle(readBytes(file), file)
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
  const used = new Set<unknown>(wanted.map((ref) => ref.ann_id))
  const annotations = new Map<unknown, [offset: number, length: number, image: unknown]>()
  await readSpans(instances, 'annotations', pool, (a, offset, length) => {
    if (used.has(a.id)) annotations.set(a.id, [offset, length, a.image_id])
  })
  const indexer = new AnnotationIndexer()
  await indexer.readImages(instances, pool)
  const name = basename(dirname(instances))
  for (const ref of wanted) {
    for (const { sent_id, raw, sent } of chosen(ref, config)) {
      const text = config.refSplit === 'train' ? trainingText(raw) : sent
      indexer.add(`${name}/${ref.ref_id}/${sent_id}`, text, ...(annotations.get(ref.ann_id) ?? [0, 0, -1]))
    }
  }
  return { ...indexer.index(), splits }
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

export async function openRefCoco(folder: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const instances = join(folder, 'instances.json')
  const refs = join(folder, namesIn(folder, refsName).at(-1)!)
  pool.watch(instances)
  const settings = `${config.refSplit} ${config.textMode} ${config.textMode === 'random' ? (config.seed ?? 0) : ''}`
  const index = await cachedIndex({ kind: 'refcoco-2', files: [instances, refs], settings }, () =>
    buildIndex(instances, refs, config, pool),
  )
  const known = Object.entries(index.splits).map(([split, n]) => `${split} ${n}`)
  if (index.ids.length === 0) {
    throw new Mismatch({ where: refs, field: 'refSplit', expected: `one of ${known.join(', ')}`, got: config.refSplit })
  }
  const source = {
    name: basename(folder),
    format: `RefCOCO style (${basename(refs)}, split ${config.refSplit})`,
    instances,
    index,
    settings,
    schema: [`splits (refs): ${known.join(', ')}`],
    folder,
    roots: config.imageRoot ? [config.imageRoot] : refImageFolders(folder),
    hint: 'set data.imageRoot to the folder of COCO train2014 images',
    idOf: (stored: string) => stored,
    whereOf: (stored: string) => `${refs}: ${stored}`,
    textField: 'sentences',
    missing: `an entry of ${instances}`,
  }
  return annotationSource(source, pool)
}
