// What distinguishes two states of a set: fingerprints, cached indexes, drawn sentences, keys of rows.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { boxRle, garRow, grey, rowsOf, testFolder } from '../../../tests/support/data.ts'
import { writeGarArrow } from '../arrow/write.ts'
import { DataConfig, type DataOptions } from '../config.ts'
import { checkRegion } from '../decode.ts'
import { BadRecord, type Region, type Source } from '../example.ts'
import { curriculumBuckets } from '../order.ts'
import { openSource } from './open.ts'
import { recordsInRow } from './regions.ts'
import { rowKey } from './row-keys.ts'

const root = testFolder()

async function captionsIn(path: string, options: DataOptions = {}): Promise<string[]> {
  const source = await openSource(path, options)
  const regions = Array.from({ length: source.length }, (_, i) => source.region(i, { image: false }))
  const captions = (await Promise.all(regions)).map(({ caption }) => caption)
  await source.close()
  return captions
}

async function fingerprintOf(path: string, options: DataOptions = {}): Promise<string> {
  const source = await openSource(path, options)
  await source.close()
  return source.fingerprint
}

/** A folder of JSONL files, a record each. */
function jsonl(folder: string, captions: readonly string[]): string {
  mkdirSync(join(root, folder), { recursive: true })
  for (const [i, caption] of captions.entries()) {
    const record = { id: `${i}`, image: 'a.png', mask: boxRle(24, 16, 1, 2, 5, 6), caption }
    writeFileSync(join(root, folder, `part-${i}.jsonl`), JSON.stringify(record))
  }
  return join(root, folder)
}

test('a file of other length, alone or as one of several parts, is other data under the same names', async () => {
  const [first, same, other] = [
    ['a', 'a'],
    ['a', 'a'],
    ['a', 'long'],
  ].map((captions, i) => jsonl(`${i}/set`, captions))
  assert.equal(await fingerprintOf(first!), await fingerprintOf(same!))
  assert.notEqual(await fingerprintOf(first!), await fingerprintOf(other!))
  const part = (folder: string) => fingerprintOf(join(folder, 'part-1.jsonl'))
  assert.equal(await part(first!), await part(same!))
  assert.notEqual(await part(first!), await part(other!))
})

test('shards of the same names and rows but other bytes are other data', async () => {
  const shard = async (folder: string, value: string) => {
    const conversations = [{ from: 'gpt', value }]
    await writeGarArrow(join(root, folder), rowsOf([await garRow(0, { conversations })]))
    return await fingerprintOf(join(root, folder))
  }
  const short = await shard('one/gar', 'a cup')
  assert.equal(await shard('two/gar', 'a cup'), short)
  assert.notEqual(await shard('three/gar', 'a cup '.repeat(99)), short)
})

const sentences = (i: number) =>
  [0, 1, 2].map((k) => ({ sent_id: 3 * i + k, raw: `Raw ${i} ${k}.`, sent: `sent ${k}` }))

async function refCoco(name: string): Promise<string> {
  const folder = join(root, name)
  mkdirSync(join(folder, 'train2014'), { recursive: true })
  writeFileSync(join(folder, 'train2014', 'a.png'), await grey(24, 16))
  const annotations = [{ id: 1, image_id: 1, segmentation: [[2, 2, 7, 2, 7, 6, 2, 6]] }]
  const images = [{ id: 1, file_name: 'a.png', height: 16, width: 24 }]
  writeFileSync(join(folder, 'instances.json'), JSON.stringify({ images, annotations }))
  const refs = Array.from({ length: 12 }, (_, i) => {
    return { ref_id: i, ann_id: 1, split: i < 11 ? 'train' : 'val', sentences: sentences(i) }
  })
  writeFileSync(join(folder, 'refs(unc).json'), JSON.stringify(refs))
  return folder
}

test('RefCOCO is read as trained on in train alone; one sentence of each region is drawn by the seed, and is other data', async () => {
  const folder = await refCoco('refcoco')
  assert.deepEqual((await captionsIn(folder)).slice(0, 3), ['raw 0 0', 'raw 0 1', 'raw 0 2'])
  assert.deepEqual(await captionsIn(folder, { refSplit: 'val' }), ['sent 0', 'sent 1', 'sent 2'])
  const drawn = async (seed: number) => await captionsIn(folder, { textMode: 'random', seed })
  const places = (captions: readonly string[]) => new Set(captions.map((caption) => caption.at(-1)))
  assert.equal(places(await drawn(1)).size, 3, 'regions draw by themselves')
  assert.deepEqual(await drawn(1), await drawn(1))
  assert.notDeepEqual(await drawn(1), await drawn(2))
  const printed = (seed: number) => fingerprintOf(folder, { textMode: 'random', seed })
  assert.notEqual(await printed(1), await printed(2))
})

test('sentences of COCO images are drawn image by image', async () => {
  const folder = join(root, 'coco')
  mkdirSync(join(folder, 'annotations'), { recursive: true })
  const count = 12
  const ids = Array.from({ length: count }, (_, i) => i + 1)
  const images = ids.map((id) => ({ id, file_name: 'a.png', height: 16, width: 24 }))
  const annotations = ids.map((id) => ({ id, image_id: id, segmentation: [[2, 2, 7, 2, 7, 6]] }))
  const captions = ids.flatMap((id) => [0, 1, 2].map((k) => ({ image_id: id, caption: `${id} ${k}` })))
  writeFileSync(join(folder, 'a.png'), await grey(24, 16))
  writeFileSync(join(folder, 'annotations', 'instances_train.json'), JSON.stringify({ images, annotations }))
  writeFileSync(join(folder, 'annotations', 'captions_train.json'), JSON.stringify({ annotations: captions }))
  const drawn = await captionsIn(folder, { cocoText: 'captions', textMode: 'random' })
  assert.deepEqual(
    drawn.map((caption) => Number.parseInt(caption, 10)),
    ids,
  )
  assert.equal(new Set(drawn.map((caption) => caption.at(-1))).size, 3)
})

test('mask sizes that a curriculum keeps belong to the data, not to their name', async () => {
  const config = DataConfig.parse({ curriculum: 'large-first', curriculumBuckets: 2 })
  const bucketsOf = async (fingerprint: string, inside: readonly number[]) => {
    const region = async (i: number) => ({ mask: { height: 10, width: 10, counts: Uint32Array.of(100 - inside[i]!, inside[i]!) } }) // biome-ignore format: one line
    return [...(await curriculumBuckets({ name: 'set', fingerprint, length: 2, region } as unknown as Source, config))!]
  }
  assert.deepEqual(await bucketsOf('before', [9, 5]), [0, 1])
  assert.deepEqual(await bucketsOf('after', [5, 9]), [1, 0])
})

test('stored scores name a record by its id, or by its place as 0.1.0 did', async () => {
  const difficultyFile = join(root, 'scores.jsonl')
  writeFileSync(difficultyFile, '{"id": "old/1", "score": 0}\n{"id": "new/0", "score": 1}\n')
  const config = DataConfig.parse({ curriculum: 'easy-first', curriculumBuckets: 2, difficultyFile })
  const source = { name: 'set', length: 2, id: (i: number) => `new/${i}`, place: (i: number) => `old/${i}` }
  assert.deepEqual([...(await curriculumBuckets(source as Source, config))!], [1, 0])
})

test('the key of a row is that of its values, however wide their numbers are stored, and of the borders between them', () => {
  const columns = { image: 'image', mask: 'mask', text: 'text', category: null, id: null }
  const key = (mask: unknown) => rowKey({ mask, text: 'a cup' }, columns)
  assert.equal(key({ size: [16n, 24n], counts: 'x' }), key({ size: Int32Array.of(16, 24), counts: 'x' }))
  assert.notEqual(key({ size: [16, 24], counts: 'x' }), key({ size: [24, 16], counts: 'x' }))
  const parts = (...texts: string[]) => key(texts.map((text) => Buffer.from(text)))
  assert.notEqual(parts('ab', 'c'), parts('a', 'bc'))
})

test('a row with more answers than masks is one record, which is rejected', () => {
  const answers = (count: number) => Array.from({ length: count }, (_, i) => ({ from: 'gpt', value: `${i}` }))
  assert.deepEqual(
    [1, 2, 3].map((count) => recordsInRow(2, answers(count))),
    [1, 2, 1],
  )
})

test('other regions of a record have the size of its first one, on both sides', () => {
  const mask = (height: number, width: number) => ({ height, width, counts: Uint32Array.of(0, height * width) })
  const region = (other: Region['mask']) =>
    ({ mask: mask(16, 24), extraMasks: [other], where: 'x' }) as unknown as Region
  checkRegion(region(mask(16, 24)))
  for (const other of [mask(12, 24), mask(16, 12)])
    assert.throws(
      () => checkRegion(region(other)),
      (e) => e instanceof BadRecord && e.reason === 'size-mismatch',
    )
})
