import assert from 'node:assert/strict'
import { copyFileSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { boxRle, fixtures, garRow, grey, rowsOf, testFolder } from '../../../tests/support/data.ts'
import { maskArea, maskBox } from '../../mask/index.ts'
import { writeGarArrow } from '../arrow/write.ts'
import type { DataOptions } from '../config.ts'
import { BadRecord, type Source } from '../example.ts'
import { openSource } from './open.ts'

const root = testFolder()

/** Caption and box of every record, or the reason why it is unusable. */
async function summary(path: string, options: DataOptions = {}): Promise<{ lines: string[]; source: Source }> {
  const source = await openSource(path, options)
  const lines: string[] = []
  for (let i = 0; i < source.length; i++) {
    try {
      const { caption, mask, image } = await source.get(i)
      lines.push(`${source.place(i)}: ${caption} [${maskBox(mask)}] ${image.width}x${image.height}`)
    } catch (error) {
      if (!(error instanceof BadRecord)) throw error
      lines.push(`${source.place(i)}: ${error.reason}`)
    }
  }
  await source.close()
  return { lines, source }
}

function put(path: string, content: unknown): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, content instanceof Uint8Array ? content : JSON.stringify(content))
}

const box = (x: number, y: number, w: number, h: number) => [x, y, x + w, y, x + w, y + h, x, y + h]

test("Sa2VA's fine-tuning list: a record for each object, polygons at the size of its image", async () => {
  const folder = join(root, 'list')
  put(join(folder, 'images', 'a.png'), await grey(24, 16))
  put(join(folder, 'images', 'sub', 'b.png'), await grey(30, 20))
  put(join(folder, 'annotations.json'), [
    {
      image: 'a.png',
      mask: [[box(2, 2, 5, 4)], [box(1, 1, 3, 3), box(10, 5, 4, 4)]],
      text: ['one part', ' two parts '],
    },
    { image: 'sub/b.png', mask: [box(4, 4, 6, 6)], text: 'a bare polygon' },
    { image: 'a.png', mask: [boxRle(24, 16, 3, 3, 8, 9)], text: ['runs'] },
    { image: 'a.png', mask: [[box(1, 1, 5, 5)]], text: ['one', 'too many'] },
    { image: 'absent.png', mask: [[box(1, 1, 5, 5)]], text: ['no image'] },
    { image: '../annotations.json', mask: [[box(1, 1, 5, 5)]], text: ['outside'] },
    { image: 'a.png', mask: [[]], text: ['nothing drawn'] },
    { image: 'a.png', text: ['no mask'] },
  ])
  const { lines, source } = await summary(folder)
  assert.deepEqual(lines, [
    'list/0/0: one part [2,2,5,4] 24x16',
    'list/0/1: two parts [1,1,13,8] 24x16',
    'list/1: a bare polygon [4,4,6,6] 30x20',
    'list/2: runs [3,3,5,6] 24x16',
    'list/3: turn-count',
    'list/4: image-missing',
    'list/5: image-missing',
    'list/6: no-mask',
    'list/7: turn-count',
  ])
  assert.match(source.format, /Sa2VA's fine-tuning list/)
})

function coco(images: readonly string[]) {
  return {
    images: images.map((file_name, i) => ({ id: i + 1, file_name, height: 16, width: 24 })),
    annotations: [
      { id: 11, image_id: 1, category_id: 7, segmentation: [box(2, 2, 5, 4)], iscrowd: 0 },
      { id: 12, image_id: 2, category_id: 7, segmentation: [box(1, 1, 4, 4)], iscrowd: 0 },
      { id: 13, image_id: 2, category_id: 8, segmentation: boxRle(24, 16, 9, 9, 14, 14), iscrowd: 0 },
      { id: 14, image_id: 1, category_id: 8, segmentation: { size: [16, 24], counts: [0, 384] }, iscrowd: 1 },
      { id: 15, image_id: 9, category_id: 8, segmentation: [box(1, 1, 4, 4)], iscrowd: 0 },
      { id: 16, image_id: 3, category_id: 99, segmentation: [box(1, 1, 4, 4)], caption: 'its own words', iscrowd: 0 },
    ],
    categories: [
      { id: 7, name: 'cup' },
      { id: 8, name: 'plate' },
    ],
  }
}

test('a COCO file that is empty, or has only crowds, is named with the reason', async () => {
  const folder = join(root, 'no-coco')
  put(join(folder, 'instances.json'), new Uint8Array(0))
  await assert.rejects(
    openSource(folder),
    /no-coco: records: expected at least one, got 0\. the download may be incomplete$/,
  )
  const crowd = { id: 1, image_id: 1, category_id: 1, segmentation: { size: [1, 1], counts: [0, 1] }, iscrowd: 1 }
  put(join(folder, 'instances.json'), { images: [{ id: 1, file_name: 'a.png' }], annotations: [crowd] })
  await assert.rejects(openSource(folder), /got 0\. 1 left out: crowd \(iscrowd: a region of many objects\)$/)
})

test('plain COCO: regions with the name of their category, crowds left out and counted', async () => {
  const folder = join(root, 'coco')
  const names = ['1.png', '2.png', '3.png']
  for (const name of names) put(join(folder, 'val2017', name), await grey(24, 16))
  put(join(folder, 'annotations', 'instances_val2017.json'), coco(names))
  put(join(folder, 'annotations', 'instances_train2017.json'), { images: [], annotations: [], categories: [] })
  const sentences = ['A cup on a table.', 'White cup'].map((caption, i) => ({ id: i, image_id: 1, caption }))
  put(join(folder, 'annotations', 'captions_val2017.json'), {
    annotations: [...sentences, { image_id: 2, caption: 'x' }],
  })
  const { lines, source } = await summary(folder, { refSplit: 'val' })
  assert.deepEqual(lines, [
    'coco-val2017/11: cup [2,2,5,4] 24x16',
    'coco-val2017/12: cup [1,1,4,4] 24x16',
    'coco-val2017/13: plate [9,9,5,5] 24x16',
    'coco-val2017/15: bad-record',
    'coco-val2017/16: its own words [1,1,4,4] 24x16',
  ])
  assert.deepEqual(source.leftOut, { 'crowd (iscrowd: a region of many objects)': 1 })

  const captions = await summary(folder, { refSplit: 'val', cocoText: 'captions' })
  assert.deepEqual(captions.lines, [
    'coco-val2017/11/0: A cup on a table. [2,2,5,4] 24x16',
    'coco-val2017/11/1: White cup [2,2,5,4] 24x16',
  ])
  assert.equal(captions.source.leftOut['several objects in the image: its sentences may speak of any'], 2)
  assert.equal(captions.source.leftOut['no sentence about the image'], 2)
  assert.equal((await summary(folder, { refSplit: 'val', cocoText: 'captions', textMode: 'random' })).lines.length, 1)
  await assert.rejects(openSource(folder, { refSplit: 'train' }), /records: expected at least one/)
})

test('one COCO file beside its images, and an error if it has no captions but they are required', async () => {
  const folder = join(root, 'flat')
  for (const name of ['1.png', '2.png', '3.png']) put(join(folder, 'images', name), await grey(24, 16))
  put(join(folder, 'annotations.json'), coco(['1.png', '2.png', '3.png']))
  const { lines } = await summary(folder)
  assert.equal(lines[0], 'flat/11: cup [2,2,5,4] 24x16')
  await assert.rejects(openSource(folder, { cocoText: 'captions' }), /cocoText: expected a file of captions, got none/)
})

/** A `datasets` cache as `load_dataset` leaves it. */
async function preparedDataset(
  home: string,
  config: string,
  splits: Record<string, number>,
  name = 'org___my_set',
): Promise<string> {
  const folder = join(home, 'datasets', name, config, '0.0.0', 'abc123')
  mkdirSync(folder, { recursive: true })
  for (const [split, rows] of Object.entries(splits)) {
    const made = join(root, `made-${config}-${split}`)
    await writeGarArrow(made, rowsOf(await Promise.all(Array.from({ length: rows }, (_, i) => garRow(i)))))
    const [shard] = readdirSync(made).filter((name) => name.endsWith('.arrow'))
    renameSync(join(made, shard!), join(folder, `my_set-${split}.arrow`))
  }
  writeFileSync(join(folder, 'dataset_info.json'), '{}')
  writeFileSync(join(folder, 'cache-0123.arrow'), 'not a shard of the set')
  mkdirSync(`${folder}.incomplete`, { recursive: true })
  writeFileSync(join(home, 'datasets', name, `${config}_builder.lock`), '')
  return folder
}

/** Folder names as `datasets` 5.0 writes them (builder.py: the owner as it is, the name in snake case), and as 1.x did. */
const namesOfDatasets = [
  ['HaochenWang/Grasp-Any-Region-Dataset', 'HaochenWang___grasp-any-region-dataset'],
  ['Ricky06662/refCOCOg_9k_840', 'Ricky06662___ref_coc_og_9k_840'],
  ['Ricky06662/VisionReasoner_multi_object_7k_840', 'Ricky06662___vision_reasoner_multi_object_7k_840'],
  ['org/HTMLPages2Go', 'org___html_pages2_go'],
  ['Org/Older-Name', 'org___older-name'],
] as const

test('an id opens what load_dataset left in its cache: one split, unfinished folders and caches passed over', async () => {
  const home = join(root, 'hf')
  const before = { home: process.env.HF_HOME, hub: process.env.HF_HUB_CACHE, sets: process.env.HF_DATASETS_CACHE }
  process.env.HF_HOME = home
  delete process.env.HF_HUB_CACHE
  delete process.env.HF_DATASETS_CACHE
  try {
    const folder = await preparedDataset(home, 'default', { train: 3, validation: 2 })
    const train = await summary('org/my_set')
    assert.deepEqual([train.source.length, train.lines[0]], [3, 'my_set/my_set-train/0: caption 0 [1,1,1,5] 24x16'])
    assert.equal((await summary('org/my_set', { refSplit: 'validation' })).source.length, 2)
    await assert.rejects(
      openSource('org/my_set', { refSplit: 'test' }),
      /refSplit: expected one of train, validation, got test/,
    )
    await preparedDataset(home, 'other', { train: 1 })
    await assert.rejects(openSource('org/my_set'), /2 configurations in .*org___my_set.*name one: .*default.*other/)
    assert.equal((await summary(folder)).source.length, 3)
    for (const [id, name] of namesOfDatasets) {
      await preparedDataset(home, 'default', { train: 1 }, name)
      assert.equal((await summary(id)).source.length, 1, id)
      rmSync(join(home, 'datasets', name), { recursive: true })
    }
    await assert.rejects(openSource('org/absent'), /no such path, and nothing of that name in .*hub or .*datasets/)
    await assert.rejects(openSource('../..' + home.slice(0, 0) + '/nothing-here'), /no such file or folder/)
  } finally {
    for (const [key, value] of Object.entries({
      HF_HOME: before.home,
      HF_HUB_CACHE: before.hub,
      HF_DATASETS_CACHE: before.sets,
    }))
      if (value === undefined) delete process.env[key]
      else process.env[key] = value
  }
})

test('a source says which shards are missing and how many rows were left out', async () => {
  const folder = join(root, 'one-of-44')
  await writeGarArrow(folder, rowsOf([await garRow(0), await garRow(1)]))
  const names = Array.from({ length: 44 }, (_, i) => `data-${String(i).padStart(5, '0')}-of-00044.arrow`)
  renameSync(join(folder, 'data-00000-of-00001.arrow'), join(folder, names[0]!))
  writeFileSync(join(folder, 'state.json'), JSON.stringify({ _data_files: names.map((filename) => ({ filename })) }))
  const stated = await openSource(folder)
  assert.deepEqual(stated.warnings, [
    `${folder}: have 1 of 44 shards that state.json names; missing ${names.slice(1, 6).join(', ')}, ...`,
  ])
  await stated.close()
  rmSync(join(folder, 'state.json'))
  const bare = await openSource(folder)
  assert.deepEqual(bare.warnings, [`${folder}: have 1 of 44 shards; missing 1 to 43`])
  await bare.close()

  const parquet = join(root, 'parquet-1-of-9')
  mkdirSync(parquet)
  copyFileSync(join(fixtures, 'train-00000-of-00001.parquet'), join(parquet, 'train-00003-of-00009-0123abcd.parquet'))
  const part = await openSource(parquet)
  assert.deepEqual(part.warnings, [`${parquet}: have 1 of 9 shards; missing 0 to 2, 4 to 8`])
  assert.deepEqual(part.leftOut, { 'relation (text names several regions; setting data.relation)': 1 })
  await part.close()
})

test('rows that dataset_info.json counts and the shards do not have are a warning', async () => {
  const folder = join(root, 'fewer')
  await writeGarArrow(folder, rowsOf([await garRow(0), await garRow(1)]))
  const info = { splits: { train: { num_examples: 5 } } }
  writeFileSync(join(folder, 'dataset_info.json'), JSON.stringify(info))
  const source = await openSource(folder)
  assert.match(source.warnings[0]!, /2 rows in the shards, 5 in dataset_info\.json/)
  assert.equal(maskArea((await source.region(0)).mask) > 0, true)
  await source.close()
})

test('dataset_dict.json: a split without its folder, or with a file in its place, is named with what is missing', async () => {
  const folder = join(root, 'dict')
  put(join(folder, 'dataset_dict.json'), { splits: ['train'] })
  await assert.rejects(openSource(folder), /dataset_dict\.json: splits: expected a folder train next to it, got none/)
  put(join(folder, 'train'), {})
  await assert.rejects(openSource(folder), /dataset_dict\.json: splits: expected a folder train next to it/)
  for (const splits of [[null], [7], [{}], [''], ['../dict'], ['/'], [], null, 'train']) {
    put(join(folder, 'dataset_dict.json'), { splits })
    await assert.rejects(openSource(folder), /dataset_dict\.json/, JSON.stringify(splits))
  }
})

test('links that lead nowhere or to themselves are listed by name, not an error of the file system', async () => {
  const folder = join(root, 'links')
  mkdirSync(folder)
  symlinkSync('nowhere', join(folder, 'instances.json'))
  symlinkSync('itself', join(folder, 'itself'))
  await assert.rejects(openSource(folder), { name: 'Mismatch', message: /got instances\.json, itself/ })
})
