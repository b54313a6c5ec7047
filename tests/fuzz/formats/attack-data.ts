// Datasets, pictures and benchmarks, read as `inspect`, `preview` and `eval` read them.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openBenchmark, openRegionBenchmark, readPredictions, scoreRecords } from '../../../src/benchmarks/index.ts'
import { resultOf, writeResult } from '../../../src/benchmarks/result.ts'
import { writeComparison } from '../../../src/cli/benchmark-compare.ts'
import { previewPage } from '../../../src/dashboard/index.ts'
import { inspectSource, openSource, renderInspection, writeGarArrow } from '../../../src/data/index.ts'
import { boxRle, fixtures, garRow, rowsOf } from '../../support/data.ts'
import { attackFormat, type Files, filesOf, json } from './attack-folder.ts'
import { readSource, smallPng } from './source.ts'

const golden = join(import.meta.dirname, '../../fixtures/golden/benchmarks-tiny')
const rle = boxRle(24, 16, 1, 1, 5, 5)
const size = { height: 16, width: 24 }
const coco = {
  images: [1, 2].map((id) => ({ id, file_name: 'x.png', ...size })),
  categories: [{ id: 3, name: 'box' }],
  annotations: [
    { id: 11, image_id: 1, category_id: 3, iscrowd: 0, bbox: [1, 1, 5, 5], area: 25, segmentation: rle },
    { id: 12, image_id: 2, category_id: 3, iscrowd: 0, area: 64, segmentation: [[1, 1, 9, 1, 9, 9, 1, 9]] },
  ],
}
const captions = { annotations: [11, 12].map((id) => ({ id, image_id: id - 10, caption: 'a box' })) }
const list = [
  { image: 'x.png', mask: [[[1, 1, 9, 1, 9, 9]], [[2, 2, 8, 2, 8, 8]]], text: ['a', 'b'] },
  { image: 'x.png', mask: [rle], text: ['c'] },
]
const lines = [
  { id: 'a', image: 'x.png', mask: rle, caption: 'one', category: ['box'] },
  { id: 'b', image: 'x.png', mask: { polygons: [[1, 1, 9, 1, 9, 9, 1, 9]], size: [16, 24] }, caption: 'two' },
  { image: 'x.png', mask: 'x.png', caption: 'three' },
]

/** Records, then what `data inspect` and `data preview` show of them. */
async function readAll(path: string): Promise<string> {
  const text = await readSource(path)
  const source = await openSource(path)
  try {
    renderInspection(await inspectSource(source, { sample: 4, onProgress: () => {} }))
    const page = await previewPage(source, source.length > 1 ? [0, 1] : [])
    return page.includes('<img src=x') ? 'markup of the data in the page' : text
  } finally {
    await source.close()
  }
}

const withImage = async (files: Files): Promise<Files> => ({ ...files, 'd/images/x.png': await smallPng() })

const sources = [
  attackFormat({
    name: 'coco',
    seeds: async () => [await withImage({ 'd/instances.json': json(coco) })],
    read: (folder) => readAll(join(folder, 'd')),
  }),
  attackFormat({
    name: 'list',
    seeds: async () => [await withImage({ 'd/annotations.json': json(list) })],
    read: (folder) => readAll(join(folder, 'd')),
  }),
  attackFormat({
    name: 'jsonl',
    seeds: async () => [{ 'r.jsonl': lines.map(json).join('\n'), 'x.png': await smallPng() }],
    attacks: /jsonl/,
    read: (folder) => readAll(join(folder, 'r.jsonl')),
  }),
]

async function datasetDict(folder: string): Promise<Files> {
  const rows = await Promise.all(Array.from({ length: 4 }, (_, i) => garRow(i)))
  await writeGarArrow(join(folder, 'dict'), rowsOf(rows), { batchRows: 2 })
  const state = { _data_files: [{ filename: 'data-00000-of-00001.arrow' }], _fingerprint: 'a', _split: 'train' }
  const info = { features: {}, splits: { train: { name: 'train', num_bytes: 10, num_examples: 4 } } }
  return {
    'd/dataset_dict.json': json({ splits: ['train'] }),
    'd/train/state.json': json({ ...state, _format_type: null, _output_all_columns: false }),
    'd/train/dataset_info.json': json(info),
    'd/train/data-00000-of-00001.arrow': readFileSync(join(folder, 'dict', 'data-00000-of-00001.arrow')),
  }
}

const fixture = (name: string, as: string): Files => ({ [as]: readFileSync(join(fixtures, name)) })

async function pictures(): Promise<Files[]> {
  const { default: sharp } = await import('sharp')
  const raw = sharp({ create: { ...size, channels: 3, background: '#38a' } })
  const kinds = [
    raw.clone().png(),
    raw.clone().jpeg({ progressive: true }),
    raw.clone().webp(),
    raw.clone().gif(),
    raw.clone().tiff(),
  ]
  const line = json({ id: 'a', image: 'x.png', mask: 'm.png', caption: 'a' })
  const all = await Promise.all(kinds.map((kind) => kind.toBuffer()))
  return all.map((bytes) => ({ 'r.jsonl': line, 'x.png': bytes, 'm.png': all[0]! }))
}

const tables = [
  attackFormat({
    name: 'dataset-dict',
    seeds: async (f) => [await datasetDict(f)],
    read: (f) => readAll(join(f, 'd')),
  }),
  attackFormat({
    name: 'arrow',
    seeds: () => ['gar-list.arrow', 'shapes-file.arrow', 'shapes.arrow'].map((n) => fixture(n, 'a.arrow')),
    read: (folder) => readAll(join(folder, 'a.arrow')),
  }),
  attackFormat({
    name: 'parquet',
    seeds: () => ['train-00000-of-00001.parquet', 'zstd.parquet'].map((n) => fixture(n, 't.parquet')),
    read: (folder) => readAll(join(folder, 't.parquet')),
  }),
  attackFormat({ name: 'picture', seeds: pictures, attacks: /png/, read: (f) => readAll(join(f, 'r.jsonl')) }),
]

const predictions = readFileSync(join(golden, 'predictions.jsonl'), 'utf8').split('\n')

function reasonSeg(): Files {
  const val = filesOf(join(golden, 'reason_seg/ReasonSeg/val'))
  const files = Object.entries(val)
    .slice(0, 4)
    .map(([name, bytes]) => [`d/ReasonSeg/val/${name}`, bytes])
  const own = predictions.filter((line) => line.includes('"reasonseg"') && line.includes('"val"'))
  return { ...Object.fromEntries(files), 'p.jsonl': own.slice(0, 12).join('\n') }
}

const answers = { 'p.jsonl': [0, 1, 2, 11, 12].map((id) => json({ id, answer: 'A' })).join('\n') }
const boxes = { 'p.jsonl': ['1', '2'].map((id) => json({ id, pred_bbox: [1, 1, 5, 5], format: 'xywh' })).join('\n') }
const garItem = {
  question: 'What is <Prompt0>?',
  choices: ['A. a', 'B. b'],
  answer: 'A',
  type: 'color',
  mask_rles: [rle],
}
const refRow = { caption: 'a box', bbox: [1, 1, 5, 5], file_name: 'x.png', ...size, split: 'val' }
const dlc = {
  11: [
    {
      question: 'q',
      choices: [
        ['a', 1],
        ['b', 0],
      ],
      type: 'positive',
    },
  ],
}

async function others(): Promise<Files[]> {
  const image = await smallPng()
  const gar = json([0, 1].map((id) => ({ id, image: 'x.png', ...garItem })))
  const rows = ['1', '2'].map((id) => ({ id, ...refRow }))
  return [
    { 'gar-vqa.name': '', 'd/GAR-Bench-VQA.json': gar, 'd/x.png': image, ...answers },
    { 'ref-l4.name': '', 'd/ref-l4-val.json': json(rows), 'd/images/x.png': image, ...boxes },
    { 'ref-l4.name': '', 'd/ref-l4-val.jsonl': rows.map(json).join('\n'), 'd/images/x.png': image, ...boxes },
    {
      ...{ 'dlc-bench.name': '', 'd/annotations.json': json(coco), 'd/qa.json': json(dlc), ...answers },
      ...{ 'd/class_names.json': json({ 11: 'box', 12: 'ball' }), 'd/images/x.png': image },
    },
    {
      ...{ 'refcocog-captions.name': '', 'd/finetune_refcocog_val_with_mask.json': json(coco), ...answers },
      ...{ 'd/finetune_refcocog_val_captions.json': json(captions), 'd/images/x.png': image },
    },
  ]
}

async function readOther(folder: string): Promise<string> {
  const named = Object.keys(filesOf(folder, '', /\.name$/))[0]!.slice(0, -5) as 'gar-vqa'
  const options = { images: null, ask: async () => 'A', judgePrompt: null }
  const benchmark = await openRegionBenchmark(join(folder, 'd'), named, options)
  const scores = await benchmark.score(join(folder, 'p.jsonl'), { seed: 1, splits: null })
  return `${scores.length} splits`
}

async function readReasonSeg(folder: string): Promise<string> {
  const benchmark = openBenchmark(join(folder, 'd'), 'reasonseg')
  const found = readPredictions(join(folder, 'p.jsonl'), 'reasonseg')
  return `${(await scoreRecords(benchmark, benchmark.records, found)).length} sentences`
}

async function results(folder: string): Promise<Files[]> {
  const benchmark = openBenchmark(join(golden, 'reason_seg'), 'reasonseg')
  const found = readPredictions(join(golden, 'predictions.jsonl'), 'reasonseg')
  const scored = await scoreRecords(benchmark, benchmark.records, found)
  const facts = { by: {}, seed: 1, seconds: 1, environment: {}, refs: null } as never
  const file = join(folder, 'result.json')
  writeResult(file, resultOf(benchmark, 'val', scored, facts))
  const bytes = readFileSync(file)
  return [{ 'a.json': bytes, 'b.json': bytes }]
}

async function compare(folder: string): Promise<string> {
  const files: [string, string] = [join(folder, 'a.json'), join(folder, 'b.json')]
  const { found } = await writeComparison({ files, protocol: null, seed: 1, out: join(folder, 'out') })
  return `${found.moved.length} moved`
}

export const attackData = [
  ...sources,
  ...tables,
  attackFormat({ name: 'reasonseg', seeds: () => [reasonSeg()], attacks: /json/, read: readReasonSeg }),
  attackFormat({ name: 'benchmarks', seeds: others, attacks: /json/, read: readOther }),
  attackFormat({ name: 'compare', seeds: results, read: compare, writes: /^out/ }),
]
