// RefCOCO, RefCOCO+, RefCOCOg and gRefCOCO: instances.json joined with refs(...).p or grefs(...).json.
import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { z } from 'zod'
import { readPickle } from '../checkpoint/index.ts'
import { namesIn, readJson } from '../core/index.ts'
import type { BenchmarkOptions, BenchmarkRecord, MaskBenchmark } from './benchmark.ts'
import { annotationTarget, type Instances, imageOf, readInstances } from './coco.ts'
import { findFolder, findImages } from './folders.ts'
import { rowsOf } from './list.ts'
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

const Ref = z.object({
  ref_id: z.int(),
  ann_id: z.union([z.int(), z.array(z.int()).min(1)], 'a whole number, or a list of them'),
  image_id: z.int(),
  split: z.string(),
  sentences: z.array(z.object({ sent: z.string() })),
})
type Ref = z.infer<typeof Ref>

function refsFile(folder: string, name: RefName, refs: string): string | null {
  const stem = name === 'grefcoco' ? 'grefs' : 'refs'
  const names = namesIn(folder)
  const found = ['p', 'pickle', 'pkl', 'json'].map((end) => `${stem}(${refs}).${end}`).find((n) => names.includes(n))
  return found === undefined ? null : join(folder, found)
}

function readRefs(file: string): Ref[] {
  const rows = file.endsWith('.json') ? readJson(file) : readPickle(readFileSync(file), file)
  return rowsOf(rows, file, 'ref', Ref)
}

function recordOf(ref: Ref, instances: Instances, refs: string): BenchmarkRecord {
  const where = `${refs}: ref ${ref.ref_id}`
  const image = imageOf(instances, ref.image_id, where)
  const sentences = ref.sentences.map((s) => s.sent)
  const meant = Array.isArray(ref.ann_id) && ref.ann_id.includes(-1) ? null : ref.ann_id // gRefCOCO's [-1]: nothing
  return {
    split: ref.split,
    id: ref.ref_id,
    image: image.file_name,
    sentences,
    questions: sentences.map((sent) => `<image>\n Please segment ${sent} in this image.`),
    target: async () => annotationTarget(instances, image, meant, where),
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
  // refcoco's refs(unc).p is also the name in refcoco+: a folder called like another benchmark is that one
  const own = (folder: string) => has(folder) && (basename(folder) === name || !Object.hasOwn(splits, basename(folder)))
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
