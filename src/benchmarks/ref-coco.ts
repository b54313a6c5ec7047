// RefCOCO, RefCOCO+, RefCOCOg and gRefCOCO: instances.json joined with refs(...).p or grefs(...).json.
import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { readPickle } from '../checkpoint/index.ts'
import { Mismatch, readJson } from '../core/index.ts'
import type { BenchmarkOptions, BenchmarkRecord, MaskBenchmark } from './benchmark.ts'
import { annotationTarget, type Instances, imageOf, readInstances } from './coco.ts'
import { findFolder, findImages, namesIn } from './folders.ts'
import type { MaskBenchmarkName } from './names.ts'

type RefName = Exclude<MaskBenchmarkName, 'reasonseg'>

/** The division that papers report. */
const usualRefs: Readonly<Record<RefName, string>> = {
  refcoco: 'unc',
  'refcoco+': 'unc',
  refcocog: 'umd',
  grefcoco: 'unc',
}

const splits: Readonly<Record<RefName, readonly string[]>> = {
  refcoco: ['val', 'testA', 'testB', 'test'],
  'refcoco+': ['val', 'testA', 'testB', 'test'],
  refcocog: ['val', 'test'],
  grefcoco: ['val', 'testA', 'testB'],
}

interface Ref {
  ref_id: number
  ann_id: number | number[]
  image_id: number
  split: string
  sentences: { sent: string }[]
}

function refsFile(folder: string, name: RefName, refs: string): string | null {
  const stem = name === 'grefcoco' ? 'grefs' : 'refs'
  const names = namesIn(folder)
  const found = ['p', 'pickle', 'pkl', 'json'].map((end) => `${stem}(${refs}).${end}`).find((n) => names.includes(n))
  return found === undefined ? null : join(folder, found)
}

function readRefs(file: string): Ref[] {
  const rows = file.endsWith('.json') ? readJson(file) : readPickle(readFileSync(file), file)
  if (!Array.isArray(rows)) throw new Mismatch({ where: file, expected: 'a list of refs', got: typeof rows })
  for (const [i, row] of rows.entries()) checkRef(row as Partial<Ref> | null, `${file}: ref ${i}`)
  return rows as Ref[]
}

function checkRef(ref: Partial<Ref> | null, where: string): void {
  const need = (ok: boolean, field: string, expected: string, got: unknown) => {
    if (!ok) throw new Mismatch({ where, field, expected, got: got ?? 'none' })
  }
  need(typeof ref === 'object' && ref !== null, 'ref', 'an object', typeof ref)
  const ids = [ref!.ann_id].flat()
  need(Number.isInteger(ref!.ref_id), 'ref_id', 'a whole number', ref!.ref_id)
  need(Number.isInteger(ref!.image_id), 'image_id', 'a whole number', ref!.image_id)
  need(ids.length > 0 && ids.every(Number.isInteger), 'ann_id', 'a whole number, or a list of them', ref!.ann_id)
  need(typeof ref!.split === 'string', 'split', 'a word', ref!.split)
  const sentences = ref!.sentences
  const isList = Array.isArray(sentences) && sentences.every((s) => typeof s?.sent === 'string')
  need(isList, 'sentences', 'a list with sent', sentences)
}

/** gRefCOCO's [-1] says that nothing is meant. */
function annotationIds(annId: Ref['ann_id']): number | number[] | null {
  return Array.isArray(annId) && annId.includes(-1) ? null : annId
}

function recordOf(ref: Ref, instances: Instances, refs: string): BenchmarkRecord {
  const where = `${refs}: ref ${ref.ref_id}`
  const image = imageOf(instances, ref.image_id, where)
  const sentences = ref.sentences.map((s) => s.sent)
  return {
    split: ref.split,
    id: ref.ref_id,
    image: image.file_name,
    sentences,
    questions: sentences.map((sent) => `<image>\n Please segment ${sent} in this image.`),
    target: async () => annotationTarget(instances, image, annotationIds(ref.ann_id), where),
  }
}

/** testA, testB: the split's word contains the last letter; test: it contains "test"; others, and all of gRefCOCO: equal. */
function inRefSplit(name: RefName, split: string, word: string): boolean {
  if (name === 'grefcoco') return word === split
  if (/^test[A-Z]$/.test(split)) return word.includes(split.at(-1)!)
  return split === 'test' ? word.includes('test') : word === split
}

export function openRefBenchmark(data: string, name: RefName, options: BenchmarkOptions): MaskBenchmark {
  const refs = options.refs ?? usualRefs[name]
  const has = (folder: string) => namesIn(folder).includes('instances.json') && refsFile(folder, name, refs) !== null
  const files = `instances.json and ${name === 'grefcoco' ? 'grefs' : 'refs'}(${refs}).p or .json`
  const own = (folder: string) => has(folder) && (basename(folder) === name || !isOther(folder, name))
  const folder = findFolder(data, [name, `ref_seg/${name}`], own, `a folder of ${name} with ${files}`)
  const instances = readInstances(join(folder, 'instances.json'))
  const source = refsFile(folder, name, refs)!
  const records = readRefs(source).map((ref) => recordOf(ref, instances, source))
  return {
    name,
    folder,
    images: () => findImages(folder, options.images, records[0]?.image ?? ''),
    orient: false,
    source,
    records,
    splits: splits[name],
    inSplit: (split, record) => inRefSplit(name, split, record.split),
  }
}

/** refcoco's refs(unc).p is also the name in refcoco+: a folder called like another benchmark is that one. */
function isOther(folder: string, name: RefName): boolean {
  return Object.keys(splits).some((other) => other !== name && basename(folder) === other)
}
