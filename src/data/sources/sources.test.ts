import assert from 'node:assert/strict'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { boxRle, fixtures, garRow, grey, rowsOf, testFolder } from '../../../tests/support/data.ts'
import { maskArea, maskBox } from '../../mask/index.ts'
import { writeGarArrow } from '../arrow/write.ts'
import type { DataOptions } from '../config.ts'
import { BadRecord, type Source } from '../example.ts'
import { openLoader } from '../loader.ts'
import { openSource } from './open.ts'

const root = testFolder()

/** Caption and box of every record; the reason where it is unusable. */
async function summary(source: Source): Promise<string[]> {
  const lines: string[] = []
  for (let i = 0; i < source.length; i++) {
    try {
      const { caption, mask, image } = await source.get(i)
      lines.push(`${caption} [${maskBox(mask)}] ${image.width}x${image.height}`)
    } catch (error) {
      if (!(error instanceof BadRecord)) throw error
      lines.push(error.reason)
    }
  }
  return lines
}

async function opened<T>(path: string, options: DataOptions, use: (source: Source) => Promise<T> | T): Promise<T> {
  const source = await openSource(path, options)
  try {
    return await use(source)
  } finally {
    await source.close()
  }
}

const garWithoutRelation = [
  'a grey box [2,2,7,6] 24x16',
  'first thing [0,0,4,4] 24x16',
  'second thing [10,5,10,7] 24x16',
  'turn-count',
  'no-mask',
  'turned by EXIF [3,3,3,3] 24x16',
  'stored size fits [3,3,3,3] 24x16',
]

for (const name of ['gar-list.arrow', 'gar-transposed.arrow', 'train-00000-of-00001.parquet', 'zstd.parquet']) {
  test(`${name}: rows with several masks become records, relations are left out and counted`, async () => {
    await opened(join(fixtures, name), {}, async (source) => {
      assert.deepEqual(await summary(source), garWithoutRelation)
      assert.deepEqual(Object.values(source.leftOut), [1])
      const stem = name.replace(/\.\w+$/, '')
      assert.equal(source.place(0), `${stem}/${stem}/0`)
      assert.equal(source.place(2), `${stem}/${stem}/1/1`)
    })
  })
}

test('a Parquet file is described with its columns nested, and one file is singular', async () => {
  await opened(join(fixtures, 'train-00000-of-00001.parquet'), {}, (source) => {
    assert.equal(source.format, 'Parquet (1 file)')
    assert.deepEqual(source.schema, [
      'image: {bytes: binary, path: string}',
      'conversations: list<{from: string, value: string}>',
      'mask_rle: list<{counts: string, size: list<int32>}>',
      'catagory: list<string>',
    ])
  })
})

test('relation "first" gives region 0 with the other masks beside it and regions named by letters', async () => {
  await opened(join(fixtures, 'gar-list.arrow'), { relation: 'first' }, async (source) => {
    const example = await source.get(3)
    assert.equal(example.caption, 'Region A is left of Region B')
    assert.deepEqual(example.extraMasks?.map(maskArea), [70])
    assert.deepEqual((await source.get(0)).category, ['box'])
  })
})

test('a save_to_disk folder follows the order of state.json and reads back what was written', async () => {
  const folder = join(root, 'Fine-Grained-Dataset-Part2')
  const rows = await Promise.all(Array.from({ length: 23 }, (_, i) => garRow(i)))
  const bytes = rows[0]!.image.bytes!.length
  assert.equal(await writeGarArrow(folder, rowsOf(rows), { shardBytes: 10 * bytes, batchRows: 4 }), 23)
  assert.deepEqual(readdirSync(folder).sort(), [
    'data-00000-of-00003.arrow',
    'data-00001-of-00003.arrow',
    'data-00002-of-00003.arrow',
    'dataset_info.json',
    'state.json',
  ])
  await opened(folder, {}, async (source) => {
    assert.equal(source.length, 23)
    assert.equal(source.place(0), 'gar-fine-grained-part2/data-00000-of-00003/0')
    for (const i of [22, 0, 11, 10, 9, 5]) {
      const example = await source.get(i)
      assert.equal(example.caption, `caption ${i}`)
      assert.equal(example.image.data[0], i)
    }
  })
  await assert.rejects(writeGarArrow(folder, rowsOf(rows)), /already|has some/)
})

test('bare shards are read, and the missing ones are reported by number', async () => {
  const from = join(root, 'Fine-Grained-Dataset-Part2')
  const folder = join(root, 'bare')
  mkdirSync(folder)
  for (const i of [0, 2]) {
    copyFileSync(join(from, `data-0000${i}-of-00003.arrow`), join(folder, `data-0000${i}-of-00003.arrow`))
  }
  writeFileSync(join(folder, 'cache-1234.arrow'), 'left by datasets')
  await opened(folder, {}, (source) => {
    assert.ok(source.length > 3 && source.length < 23)
    assert.match(source.warnings[0]!, /have 2 of 3 shards; missing 1$/)
  })
})

test('a Grasp-Any-Region root is its parts in the order of their numbers', async () => {
  const base = join(root, 'gar')
  for (const part of ['Fine-Grained-Dataset-Part10', 'Fine-Grained-Dataset-Part9', 'Seed-Dataset', 'Other']) {
    await writeGarArrow(join(base, part), rowsOf([await garRow(1)]))
  }
  await opened(base, {}, (source) => {
    const ids = Array.from({ length: source.length }, (_, i) => source.id(i).split('/')[0])
    assert.deepEqual(ids, ['gar-fine-grained-part9', 'gar-fine-grained-part10', 'gar-seed'])
  })
})

test('the id of a downloaded dataset opens its snapshot, and an unknown one is refused without the network', async () => {
  const hub = join(root, 'hub')
  const repo = join(hub, 'datasets--org--name')
  mkdirSync(join(repo, 'refs'), { recursive: true })
  writeFileSync(join(repo, 'refs', 'main'), 'abc\n')
  mkdirSync(join(repo, 'snapshots', 'abc', 'data'), { recursive: true })
  symlinkSync(
    join(fixtures, 'train-00000-of-00001.parquet'),
    join(repo, 'snapshots', 'abc', 'data', 'train-00000-of-00001.parquet'),
  )
  process.env.HF_HUB_CACHE = hub
  await opened('org/name', {}, (source) => assert.equal(source.length, garWithoutRelation.length))
  await assert.rejects(openSource('org/other'), /org\/other: expected a path/)
  delete process.env.HF_HUB_CACHE
})

function damFolder(name: string, tar: string, annotations: boolean): string {
  const folder = join(root, name)
  mkdirSync(join(folder, 'images'), { recursive: true })
  copyFileSync(join(fixtures, tar), join(folder, 'images', '00000000.tar'))
  if (annotations) copyFileSync(join(fixtures, 'dam-annotations.json'), join(folder, 'annotations.json'))
  return folder
}

const damRecords = [
  'a left box [1,1,4,4] 24x16',
  'a right box [12,4,8,5] 24x16',
  'long name [2,2,7,7] 24x16',
  'a moving box [0,0,3,3] 24x16',
]

for (const [name, tar, annotations] of [
  ['LVIS', '00000000.tar', true],
  ['PACO', 'pax.tar', true],
  ['SAV', '00000000.tar', false],
] as const) {
  test(`describe-anything from ${tar} ${annotations ? 'and annotations.json' : 'and its pickles'}: all regions with their images`, async () => {
    const folder = damFolder(name, tar, annotations)
    await opened(folder, {}, async (source) => {
      assert.deepEqual(await summary(source), damRecords)
      assert.equal(source.place(1), `dam/${name}/391895/1`)
    })
    await opened(folder, { frame: 1 }, async (source) => {
      assert.equal((await summary(source))[3], 'a moving box [5,5,4,4] 24x16')
    })
  })
}

test('a describe-anything root is all of its subsets', async () => {
  const base = join(root, 'dam')
  mkdirSync(base)
  for (const name of ['LVIS', 'PACO']) symlinkSync(join(root, name), join(base, name))
  await opened(base, {}, (source) => assert.equal(source.length, 8))
})

async function refFolder(name: string, refs: string): Promise<string> {
  const folder = join(root, name)
  mkdirSync(join(folder, 'coco2014', 'train2014'), { recursive: true })
  writeFileSync(join(folder, 'coco2014', 'train2014', 'COCO_3.jpg'), await grey(24, 16))
  copyFileSync(join(fixtures, refs), join(folder, 'refs(unc).p'))
  const box = [2, 2, 7, 2, 7, 6, 2, 6]
  writeFileSync(
    join(folder, 'instances.json'),
    JSON.stringify({
      info: { 'a "quoted" key': [1, { images: [] }] },
      annotations: [
        { id: 70, image_id: 3, category_id: 1, segmentation: [box], iscrowd: 0 },
        { id: 71, image_id: 3, category_id: 1, segmentation: { size: [16, 24], counts: [10, 20, 354] }, iscrowd: 1 },
        { id: 72, image_id: 3, category_id: 1, segmentation: [], iscrowd: 0 },
      ],
      images: [{ id: 3, file_name: 'COCO_3.jpg', height: 16, width: 24 }],
    }),
  )
  return folder
}

const places = ['train2014', 'images/train2014', 'coco/train2014', 'glamm_data/images/coco2014/train2014']
for (const [number, place] of places.entries()) {
  test(`RefCOCO in ROOT/ref_seg/refcoco finds its images in ROOT/${place}`, async () => {
    const top = join(root, 'roots', `${number}`)
    const folder = await refFolder(`roots/${number}/ref_seg/refcoco`, 'refs-0.p')
    mkdirSync(join(top, place, '..'), { recursive: true })
    renameSync(join(folder, 'coco2014', 'train2014'), join(top, place))
    await opened(folder, {}, async (source) => assert.equal((await summary(source))[0], 'the left box [2,2,5,4] 24x16'))
  })
}

test('RefCOCO without images names a few of the places it looked in', async () => {
  const folder = await refFolder('alone/ref_seg/refcoco', 'refs-0.p')
  rmSync(join(folder, 'coco2014'), { recursive: true })
  const tried = 'glamm_data/images/coco2014/train2014, images/coco2014/train2014, coco2014/train2014 or 18 more places'
  await assert.rejects(
    openSource(folder),
    new RegExp(`images: expected a folder with COCO_3.jpg, got none: there is no ${tried} .*set data.imageRoot to`),
  )
  await assert.rejects(
    openSource(folder, { imageRoot: '/nowhere/else' }),
    /got none: there is no \/nowhere\/else\. set/,
  )
})

for (const refs of ['refs-0.p', 'refs-2.p']) {
  test(`RefCOCO with ${refs}: one record a sentence, polygons rasterised, absent annotations counted`, async () => {
    const folder = await refFolder(`refcoco-${refs}`, refs)
    await opened(folder, {}, async (source) => {
      const records = ['the left box [2,2,5,4] 24x16', 'grey thing [2,2,5,4] 24x16', 'bad-record', 'no-mask']
      assert.deepEqual(await summary(source), records)
      assert.equal(source.place(0), `refcoco-${refs}/7/1`)
    })
    await opened(folder, { refSplit: 'val' }, async (source) => {
      const { caption, mask } = await source.get(0)
      assert.deepEqual([caption, maskArea(mask)], ['crowd', 20])
    })
    await opened(folder, { textMode: 'random' }, (source) => assert.equal(source.length, 3))
    await assert.rejects(
      openSource(folder, { refSplit: 'testA' }),
      /refSplit: expected one of train 3, val 1, got testA/,
    )
  })
}

test('JSONL: runs, polygons and PNG masks, paths relative to the file', async () => {
  const folder = join(root, 'own')
  mkdirSync(join(folder, 'images'), { recursive: true })
  writeFileSync(join(folder, 'images', 'a.png'), await grey(24, 16))
  writeFileSync(join(folder, 'mask.png'), await grey(24, 16, 1))
  const image = 'images/a.png'
  const lines = [
    { id: 'a', image, mask: boxRle(24, 16, 1, 2, 5, 6), caption: 'runs', category: 'thing', difficulty: 3 },
    { id: 'b', image, mask: { polygons: [[2, 2, 7, 2, 7, 6, 2, 6]], size: [16, 24] }, caption: 'polygon é' },
    { id: 'c', image, mask: 'mask.png', caption: 'png' },
  ]
  writeFileSync(join(folder, 'own.jsonl'), `${lines.map((l) => JSON.stringify(l)).join('\n')}\n\n`)
  await opened(folder, {}, async (source) => {
    assert.deepEqual(await summary(source), [
      'runs [1,2,4,4] 24x16',
      'polygon é [2,2,5,4] 24x16',
      'png [0,0,24,16] 24x16',
    ])
    assert.equal(source.id(1), 'b')
    const first = await source.get(0)
    assert.deepEqual([first.category, first.meta], [['thing'], { difficulty: 3 }])
  })
})

test('JSONL without captions is read as masks; lines without one next to others only by who needs none', async () => {
  const folder = join(root, 'uncaptioned')
  mkdirSync(folder)
  writeFileSync(join(folder, 'a.png'), await grey(24, 16))
  const write = (name: string, ...captions: object[]) => {
    const mask = boxRle(24, 16, 1, 2, 5, 6)
    const lines = captions.map((caption, i) => JSON.stringify({ id: `${name}${i}`, image: 'a.png', mask, ...caption }))
    writeFileSync(join(folder, `${name}.jsonl`), lines.join('\n'))
  }
  const bare = ' [1,2,4,4] 24x16'
  const refused = /uncaptioned: captions: expected one for each object.*JSONL: add `caption` to each line/s
  write('one', {}, { caption: null })
  write('two', {})
  await opened(folder, {}, async (source) => {
    assert.deepEqual(await summary(source), [bare, bare, bare])
    assert.throws(() => openLoader(source, { workers: 0 }), refused)
  })
  write('two', {}, { query: 'a cup' }, { caption: '' })
  await opened(folder, {}, async (source) => {
    const missing = 'empty-caption'
    assert.deepEqual(await summary(source), [missing, missing, missing, `a cup${bare}`, missing])
    const settings = { workers: 0, shuffle: false, maxRejectFraction: 1 }
    const loader = openLoader(source, settings, undefined, null, { usesNoCaption: true })
    const captions: string[] = []
    for await (const { caption } of loader) captions.push(caption)
    assert.deepEqual([captions, loader.rejects], [['', '', '', 'a cup'], { 'empty-caption': 1 }])
    await loader.close()
  })
})

test('generated scenes are a source like any other', async () => {
  await opened('scenes:5:3:64', {}, async (source) => {
    assert.equal(source.length, 5)
    const example = await source.get(4)
    assert.equal(example.id, 'scene-3-4')
    assert.equal(example.image.width, 64)
    assert.ok(maskArea(example.mask) > 0)
  })
  await assert.rejects(openSource('scenes:many'), /scenes:COUNT/)
})

test('the index is taken from the cache while the file is unchanged and built again when it is not', async () => {
  const path = join(root, 'changing.jsonl')
  const line = (id: string) => JSON.stringify({ id, image: 'x.png', mask: boxRle(24, 16, 1, 2, 5, 6), caption: 'c' })
  writeFileSync(path, `${line('a')}\n`)
  utimesSync(path, 1, 1)
  await opened(path, {}, (source) => assert.equal(source.length, 1))
  const cache = join(process.env.ROUNDTRIP_CACHE!, 'index')
  const before = readdirSync(cache).length
  await opened(path, {}, (source) => assert.equal(source.length, 1))
  writeFileSync(path, `${line('a')}\n${line('b')}\n`)
  await opened(path, {}, (source) => assert.equal(source.length, 2))
  assert.equal(readdirSync(cache).length, before)
  for (const name of readdirSync(cache)) writeFileSync(join(cache, name), '{"torn')
  await opened(path, {}, (source) => assert.equal(source.length, 2))
  rmSync(cache, { recursive: true })
  await opened(path, {}, (source) => assert.equal(source.length, 2))
  assert.ok(existsSync(cache))
})

test('a folder that is not a dataset is rejected with what it contains', async () => {
  const folder = join(root, 'nothing')
  mkdirSync(folder)
  writeFileSync(join(folder, 'notes.txt'), 'x')
  await assert.rejects(openSource(folder), /nothing: expected Arrow or Parquet shards.*got notes\.txt/)
})
