import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Binary, Field, Struct, Table, tableFromArrays, tableToIPC, vectorFromArray } from 'apache-arrow'
import { makeRefCoco } from '../../../tests/support/benchmark-folder.ts'
import { Mismatch } from '../../core/index.ts'
import { BadRecord, type GarRow, openLoader, openSource, writeGarArrow } from '../../data/index.ts'
import { encodePng, resize } from '../../image/index.ts'
import { encodeRle, maskFromDense, maskToPng, resizeMaskNearest } from '../../mask/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { reason } from '../reason/reason.ts'
import { segment } from '../segment/segment.ts'
import { derivePrompt } from './click-geometry.ts'
import { positiveOf } from './item.ts'
import { points } from './points.ts'
import { pointRecord } from './records.ts'

const folder = mkdtempSync(join(tmpdir(), 'points-'))
after(() => rmSync(folder, { recursive: true }))
process.env.ROUNDTRIP_CACHE = join(folder, 'cache')

const { record } = makePointScene(1, 4)

test('JSONL lines with a query bring masks as PNG or run lengths, and their own boxes and points', async () => {
  writeFileSync(join(folder, 'image.png'), await encodePng(record.image))
  writeFileSync(join(folder, 'mask.png'), await maskToPng(record.mask))
  const lines = [
    { id: 'a', image: 'image.png', query: 'the cup', mask: 'mask.png', box: [1, 2, 3, 4], points: [[5, 6]] },
    { id: '7', image: 'image.png', query: 'the cup', mask: encodeRle(record.mask) },
    { id: 'c', image: 'image.png', query: 'the cup', mask: 'mask.png', box: [1, 2, 3] },
  ]
  const path = join(folder, 'queries.jsonl')
  writeFileSync(path, lines.map((l) => JSON.stringify(l)).join('\n'))
  const source = await openSource(path)
  assert.equal(source.length, 3)
  const [first, second] = [pointRecord(await source.get(0)), pointRecord(await source.get(1))]
  assert.deepEqual([first.box, first.points, first.query], [[1, 2, 3, 4], [[5, 6]], 'the cup'])
  assert.deepEqual([first.mask, second.mask, second.id], [record.mask, record.mask, '7'])
  assert.deepEqual(second.image.data, record.image.data)
  const third = await source.get(2)
  assert.throws(
    () => pointRecord(third),
    (e) => e instanceof Mismatch && /record c: box: expected \[x1/.test(e.message),
  )
  const asked = { points: { mode: 'negatives', noTarget: 'drop' }, reason: { noTarget: 'drop' } } as never
  for (const kind of [points, reason, segment]) {
    const data = { workers: 0, shuffle: false, maxRejectFraction: 0.5 }
    const loader = openLoader(source, data, undefined, null, kind.recordRules!(asked))
    const ids: string[] = []
    for await (const { id } of loader) ids.push(id)
    assert.deepEqual([ids, loader.rejects], [['a', '7'], { 'bad-record': 1 }], `task ${kind.name} skips it`)
    assert.match(loader.rejected[0]!.message, /queries\.jsonl: line 3: box: expected \[x1/)
    await loader.close()
  }
  await source.close()
})

test('shapes of a generated scene are not places, and a list with places must be whole', async () => {
  const source = await openSource('scenes:1')
  const scene = await source.get(0)
  await source.close()
  assert.equal(pointRecord(scene).objects, undefined)
  const composed = { ...scene, meta: { group: 'photos/plants/1' } }
  assert.deepEqual([pointRecord(scene).unit, pointRecord(composed).unit], [undefined, scene.caption])
  const meta = { objects: [{ box: [1, 2, 3, 4], point: [2, 3] }, { box: [1, 2, 3, 4] }] }
  assert.throws(() => pointRecord({ ...scene, meta }), /objects: expected \[\{"box"/)
})

test("Seg-Zero's shards give the query, the places in pixels of the original, and the mask of the id, never a box", async () => {
  const bytes = await encodePng(record.image)
  const masks = join(folder, 'masks')
  mkdirSync(masks)
  writeFileSync(join(masks, 'r1.png'), await maskToPng(record.mask))
  const solution = '<box>(0,75),(839,840)</box><points>(420,420),(13,15)</points>'
  const table = tableFromArrays({
    id: ['r1', 'r2'],
    problem: ['the red cup', 'another'],
    solution: [solution, solution],
    img_height: Int32Array.of(112, 112),
    img_width: Int32Array.of(112, 112),
  })
  const pictures = vectorFromArray([{ bytes }, { bytes }], new Struct([new Field('bytes', new Binary())]))
  const whole = table.assign(new Table({ image: pictures }) as never)
  writeFileSync(join(folder, 'shard.arrow'), tableToIPC(whole, 'stream'))
  const source = await openSource(join(folder, 'shard.arrow'), { maskDir: masks })
  assert.equal(source.length, 2)
  const got = pointRecord(await source.get(0))
  assert.deepEqual(
    [got.id, got.query, got.box, got.points],
    [
      'r1',
      'the red cup',
      [0, 10, 111, 111],
      [
        [56, 56],
        [1, 2],
      ],
    ],
  )
  assert.deepEqual(got.mask, record.mask)
  await assert.rejects(source.get(1), /r2\.png/)
  await source.close()
})

test("a row of Seg-Zero's shards that cannot be read has a reason, by which it is counted and skipped", async () => {
  const shard = readFileSync(join(folder, 'shard.arrow'))
  shard[shard.indexOf('another')] = 0xff
  writeFileSync(join(folder, 'latin.arrow'), shard)
  const source = await openSource(join(folder, 'latin.arrow'), { maskDir: join(folder, 'masks') })
  await assert.rejects(source.get(1), (e) => e instanceof BadRecord && e.reason === 'not-utf8')
  await source.close()
})

test("VisionReasoner's shards: several objects, and an image that was stretched to the frame of the solution", async () => {
  const masks = join(folder, 'masks-of-objects')
  mkdirSync(masks)
  for (const id of ['a', 'b', 'c']) writeFileSync(join(masks, `${id}.png`), await maskToPng(record.mask))
  const small = { bytes: await encodePng(record.image) }
  const stretched = { bytes: await encodePng(resize(record.image, 840, 840, 'bilinear')) }
  const objects = [
    { bbox_2d: [75, 150, 300, 450], point_2d: [150, 300] },
    { bbox_2d: [0, 0, 840, 840], point_2d: [420, 420] },
  ]
  const table = tableFromArrays({
    id: ['a', 'b', 'c'],
    problem: ['cups', 'cups', 'cups'],
    solution: [
      JSON.stringify(objects),
      JSON.stringify(objects),
      JSON.stringify([{ bbox_2d: [1, 2, 3], point_2d: [1, 2] }]),
    ],
    img_height: Int32Array.of(112, 112, 112),
    img_width: Int32Array.of(112, 112, 112),
  })
  const pictures = vectorFromArray([small, stretched, small], new Struct([new Field('bytes', new Binary())]))
  writeFileSync(
    join(folder, 'objects.arrow'),
    tableToIPC(table.assign(new Table({ image: pictures }) as never), 'stream'),
  )
  const source = await openSource(join(folder, 'objects.arrow'), { maskDir: masks })
  const [own, large] = [pointRecord(await source.get(0)), pointRecord(await source.get(1))]
  assert.deepEqual(own.objects, [{ box: [10, 20, 40, 60], points: [[20, 40]] }, { box: [0, 0, 111, 111], points: [[56, 56]] }]) // biome-ignore format: a table
  assert.deepEqual(own.mask, record.mask)
  assert.deepEqual(large.objects![0], { box: [75, 150, 300, 450], points: [[150, 300]] })
  assert.deepEqual([large.image.width, large.mask], [840, resizeMaskNearest(record.mask, 840, 840)])
  await assert.rejects(source.get(2), /solution: expected .*bbox_2d/)
  await source.close()
})

test('a source of region captions gives its captions as queries', async () => {
  const path = join(folder, 'captions.jsonl')
  writeFileSync(
    path,
    JSON.stringify({ id: 'x', image: 'image.png', caption: 'a small cup', mask: encodeRle(record.mask) }),
  )
  const source = await openSource(path)
  const got = pointRecord(await source.get(0))
  assert.deepEqual([got.query, got.mask], ['a small cup', record.mask])
  await source.close()
})

test('a box or points of the record are kept, and what it lacks is derived from its mask', () => {
  const { mask } = record
  const derived = derivePrompt(mask)
  const [box, points] = [[1, 2, 3, 4] as const, [[5, 6] as const]]
  assert.deepEqual(positiveOf({ ...record, box }), { box, points: [...derived.points] })
  assert.deepEqual(positiveOf({ ...record, points }), { box: derived.box, points })
  assert.deepEqual(positiveOf({ ...record, box, points }), { box, points })
})

test('a RefCOCO folder gives a record for every sentence, prompted by a point well inside its mask', async () => {
  const root = join(folder, 'referring')
  const scenes = await makeRefCoco(root, 4)
  const refs = scenes.map(({ caption }, i) => ({
    ...{ ref_id: i, ann_id: 1000 + i, image_id: 100 + i, split: i < 2 ? 'val' : 'testA' },
    sentences: [caption, 'it'].map((sent, n) => ({ sent_id: 2 * i + n, sent, raw: sent })),
  }))
  writeFileSync(join(root, 'ref_seg/refcoco/refs(unc).json'), JSON.stringify(refs))
  const source = await openSource(join(root, 'ref_seg/refcoco'), {
    refSplit: 'val',
    imageRoot: join(root, 'train2014'),
  })
  assert.equal(source.length, 4, 'two images, two sentences each')
  const got = pointRecord(await source.get(0))
  const { mask, image } = scenes[0]!
  const target = maskFromDense(mask, image.height, image.width)
  assert.deepEqual([got.query, encodeRle(got.mask)], [scenes[0]!.caption, encodeRle(target)])
  const { points, box } = positiveOf(got)
  assert.deepEqual(points[0], derivePrompt(target).points[0])
  assert.ok(box, 'a box derived from the mask')
  await source.close()
})

test("region captions in the round trips' Arrow shards are queries", async () => {
  const shards = join(folder, 'shards')
  const bytes = await encodePng(record.image)
  async function* rows() {
    const conversations = [
      { from: 'human', value: '<image>\nDescribe <mask>.' },
      { from: 'gpt', value: 'a red cup on a table' },
    ]
    yield { image: { bytes, path: null }, conversations, mask_rle: encodeRle(record.mask), catagory: ['cup'] } as GarRow
  }
  await writeGarArrow(shards, rows())
  const source = await openSource(shards)
  const got = pointRecord(await source.get(0))
  assert.deepEqual([got.query, got.mask], ['a red cup on a table', record.mask])
  await source.close()
})
