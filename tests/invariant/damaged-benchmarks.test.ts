// Files of benchmarks and results with any value at any place: each is read, or rejected with its file's name.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { openRegionBenchmark } from '../../src/benchmarks/index.ts'
import { writeComparison } from '../../src/cli/benchmark-compare.ts'
import { Mismatch } from '../../src/core/index.ts'

const root = mkdtempSync(join(tmpdir(), 'roundtrip-damaged-'))
after(() => rmSync(root, { recursive: true, force: true }))

type Files = Record<string, unknown>

function write(folder: string, files: Files): string {
  const dir = join(root, folder)
  rmSync(dir, { recursive: true, force: true })
  mkdirSync(dir, { recursive: true })
  for (const [name, value] of Object.entries(files)) writeFileSync(join(dir, name), textOf(name, value))
  return dir
}

function textOf(name: string, value: unknown): string | Uint8Array {
  if (typeof value === 'string' || value instanceof Uint8Array) return value
  const lines = name.endsWith('.jsonl') && Array.isArray(value)
  return lines ? value.map((row) => JSON.stringify(row)).join('\n') : JSON.stringify(value)
}

const wrongValues = [null, '../../x', -1, {}, [null]]

/** Copies of a value, each with one place replaced by a wrong value, or missing. */
function* damagedCopies(value: unknown): Generator<[place: string, copy: unknown]> {
  for (const wrong of wrongValues) yield [`= ${JSON.stringify(wrong)}`, wrong]
  if (typeof value !== 'object' || value === null) return
  for (const key of Object.keys(value)) {
    const copyWith = (inner: unknown) => {
      const copy = structuredClone(value) as Record<string, unknown>
      if (inner === undefined && !Array.isArray(copy)) delete copy[key]
      else copy[key] = inner
      return copy
    }
    if (!Array.isArray(value)) yield [`.${key} missing`, copyWith(undefined)]
    for (const [place, inner] of damagedCopies((value as Record<string, unknown>)[key]))
      yield [`.${key}${place}`, copyWith(inner)]
  }
}

/** Runs `use` on each damaged form of each file; an error must be a Mismatch that names a file of the folder. */
async function checkAll(
  name: string,
  files: Files,
  use: (dir: string) => Promise<unknown>,
  damagedFiles = Object.keys(files),
): Promise<number> {
  await use(write(name, files))
  let rejected = 0
  const check = async (what: string, damaged: Files) => {
    const dir = write(name, damaged)
    await use(dir).catch((error: unknown) => {
      rejected++
      assert.ok(error instanceof Mismatch, `${what}: ${(error as Error).stack}`)
      assert.ok(
        error.message.includes(dir) || ['compare', 'predictions'].includes(error.info.where),
        `${what}: ${error.message}`,
      )
    })
  }
  for (const file of damagedFiles) {
    for (const [place, copy] of damagedCopies(files[file])) await check(`${file}${place}`, { ...files, [file]: copy })
    for (const text of ['', '{', '[', 'null', 'nul', '\ufeff', '[{]', '{"a":1}x', '\0\0\0\0'])
      await check(`${file} = ${JSON.stringify(text)}`, { ...files, [file]: text })
  }
  return rejected
}

const rle = { size: [4, 4], counts: '4<' }
const options = { images: null, ask: async () => 'A. Yes', judgePrompt: null }
type OtherName = Parameters<typeof openRegionBenchmark>[1]

/** Opens the benchmark and scores the predictions of the same folder. */
const scoreOther = (name: OtherName, predictions: string) => async (dir: string) =>
  (await openRegionBenchmark(dir, name, options)).score(join(dir, predictions), { seed: 1, splits: null })

test('gar-vqa: items and answers', async () => {
  const item = {
    image: 'x.png',
    question: 'what <Prompt0>',
    choices: ['A. a', 'B. <Prompt0>'],
    answer: 'A',
    type: 'color',
  }
  const files = { 'GAR-Bench-VQA.json': [{ ...item, mask_rles: [rle] }], 'p.jsonl': [{ id: 0, answer: 'A' }] }
  assert.ok((await checkAll('gar', files, scoreOther('gar-vqa', 'p.jsonl'))) > 30)
})

const row = { id: '1', caption: 'a', bbox: [1, 1, 5, 5], file_name: 'x.png', height: 30, width: 40 }
const boxes = [{ id: '1', pred_bbox: [1, 1, 5, 5], format: 'xywh' }]

test('ref-l4: rows as JSON and as lines, boxes as a list and as lines', async () => {
  const asJson = { 'ref-l4-val.json': [row], 'p.json': boxes }
  assert.ok((await checkAll('l4', asJson, scoreOther('ref-l4', 'p.json'))) > 30)
  const asLines = { 'ref-l4-val.jsonl': [row], 'p.jsonl': [...boxes, { id: '2', rle }] }
  assert.ok((await checkAll('l4', asLines, scoreOther('ref-l4', 'p.jsonl'))) > 30)
})

test('ref-l4: a Parquet file that is cut, has other columns or other bytes', async () => {
  const whole = readFileSync(new URL('../../src/data/fixtures/train-00000-of-00001.parquet', import.meta.url))
  const damaged = [
    whole,
    whole.subarray(0, 5),
    whole.subarray(0, whole.length - 9),
    Buffer.alloc(0),
    Buffer.from('PAR1PAR1'),
  ]
  for (let at = 0; at < whole.length; at += Math.ceil(whole.length / 40)) {
    const copy = Buffer.from(whole)
    copy[at] = copy[at]! ^ 0xff
    damaged.push(copy)
  }
  for (const [i, bytes] of damaged.entries()) {
    const dir = write('l4-parquet', { 'ref-l4-val.parquet': bytes })
    const isNamed = (error: unknown) => error instanceof Mismatch && error.message.includes('ref-l4-val.parquet')
    await assert.rejects(openRegionBenchmark(dir, 'ref-l4', options), isNamed, `form ${i}`)
  }
})

test('dlc-bench: annotations, questions, class names and answers', async () => {
  const instances = {
    images: [{ id: 7, file_name: 'x.png', height: 4, width: 4 }],
    annotations: [{ id: 3, image_id: 7, segmentation: rle }],
  }
  const question = { question: 'red?', choices: [['yes', 1], ['no', -1]], type: 'positive' } // biome-ignore format: pairs
  const files = {
    'annotations.json': instances,
    'qa.json': { 3: [question] },
    'class_names.json': { 3: 'cup' },
    'p.json': { 3: 'a red cup' },
  }
  assert.ok((await checkAll('dlc', files, scoreOther('dlc-bench', 'p.json'))) > 30)
})

test('refcocog-captions: masks, captions and answers', async () => {
  const files = {
    'finetune_refcocog_val_with_mask.json': {
      images: [{ id: 7, file_name: 'x.png', height: 4, width: 4 }],
      annotations: [{ id: 7, image_id: 7, segmentation: rle }],
    },
    'finetune_refcocog_val_captions.json': { annotations: [{ image_id: 7, caption: 'a red cup' }] },
    'p.json': [{ id: 7, caption: 'a cup' }],
  }
  assert.ok((await checkAll('captions', files, scoreOther('refcocog-captions', 'p.json'))) > 30)
})

test('eval --compare: both results', async () => {
  const score = { intersection: 3, union: 4, iou: 0.75 }
  const sentence = (iou: number) => ({
    ...{
      split: 'val',
      id: 1,
      sentence: 0,
      image: 'x.png',
      text: 'a cup',
      nothing: false,
      overlap: 0,
      target: rle,
      rle,
    },
    ...{ answer: 'here', scores: { union: { ...score, iou }, lisa: score } },
  })
  const result = (iou: number) => ({
    ...{ format: 'roundtrip-benchmark', benchmark: 'refcoco', split: 'val', by: { model: 'm' }, seed: 1, seconds: 1 },
    data: { folder: '/f', images: null, refs: null, refsHash: null },
    ...{ environment: {}, warning: null, reported: 'union', table: [], sentences: [sentence(iou)] },
  })
  const compare = async (dir: string) => {
    const files: [string, string] = [join(dir, 'a.json'), join(dir, 'b.json')]
    await writeComparison({ files, protocol: null, seed: 1, out: join(dir, 'out', 'deep') })
  }
  const files = { 'a.json': result(0.5), 'b.json': result(0.75) }
  assert.ok((await checkAll('compare', files, compare, ['b.json'])) > 60)
})

test('eval --compare: a result without the scores of a protocol names its file and the sentence', async () => {
  const result = (protocol: string) => {
    const scores = { [protocol]: { intersection: 1, union: 2, iou: 0.5 } }
    const sentence = { split: 'val', id: 1, sentence: 0, image: 'x', text: 'a', nothing: false, target: rle, rle: null }
    const head = { format: 'roundtrip-benchmark', benchmark: 'refcoco', split: 'val', by: {}, data: { images: null } }
    return { ...head, reported: 'union', sentences: [{ ...sentence, scores }] }
  }
  const dir = write('protocol', { 'a.json': result('union'), 'b.json': result('lisa') })
  const files: [string, string] = [join(dir, 'a.json'), join(dir, 'b.json')]
  const compare = (protocol: string | null) => writeComparison({ files, protocol, seed: 1, out: dir })
  await assert.rejects(compare(null), /b\.json: sentence \["val",1,0\]: expected scores of protocol union/)
  await assert.rejects(compare('lisa'), /a\.json: sentence .*protocol lisa/)
})
