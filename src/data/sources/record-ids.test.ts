// The held-out part of a set is that of its copies under other names, in other shards and in other formats.
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { type Field, Table, tableToIPC, Utf8, vectorFromArray } from 'apache-arrow'
import { fixtures, garRow, grey, rowsOf, testFolder } from '../../../tests/support/data.ts'
import { type GarRow, garSchema, writeGarArrow } from '../arrow/write.ts'
import type { DataOptions } from '../config.ts'
import { FilePool } from '../files.ts'
import { splitIndices } from '../order.ts'
import { ParquetFile } from '../parquet/file.ts'
import { openSource } from './open.ts'
import { imagesOf } from './parquet.ts'

const root = testFolder()
const rows = await Promise.all(Array.from({ length: 60 }, (_, i) => garRow(i)))

async function written(name: string, some: readonly GarRow[], shardBytes = 500_000_000): Promise<string> {
  const folder = join(root, name)
  await writeGarArrow(folder, rowsOf(some), { shardBytes })
  return folder
}

interface Part {
  ids: string[]
  places: string[]
  captions: string[]
  warnings: readonly string[]
}

/** The eval part of a set. */
async function evalPart(path: string, options: DataOptions = {}): Promise<Part> {
  const source = await openSource(path, options)
  const indices = [...splitIndices(source, { ...(await defaults(options)), split: 'eval', evalFraction: 0.3 })]
  const captions = await Promise.all(indices.map(async (i) => (await source.region(i, { image: false })).caption))
  await source.close()
  const { warnings } = source
  return { ids: indices.map(source.id), places: indices.map(source.place), captions, warnings }
}

const defaults = async (options: DataOptions) => (await import('../config.ts')).DataConfig.parse(options)

test('another folder name, other shards and rows left out: the same records are held out, under the same ids', async () => {
  const one = await evalPart(await written('one/photos', rows))
  assert.ok(one.captions.length > 8 && one.captions.length < 30, `${one.captions.length} of 60`)
  assert.deepEqual(one.warnings, [])
  const renamed = await evalPart(await written('two/photos-v2', rows))
  assert.deepEqual([renamed.captions, renamed.ids], [one.captions, one.ids])
  const sharded = await evalPart(await written('reshard', rows, 2000))
  assert.deepEqual([sharded.captions, sharded.ids], [one.captions, one.ids])
  const kept = rows.filter((_, i) => i % 3 !== 0)
  const filtered = await evalPart(await written('filtered', kept, 3000))
  const left = kept.map((row) => row.conversations[1]!.value.trim())
  assert.deepEqual(
    filtered.captions,
    one.captions.filter((caption) => left.includes(caption)),
  )
})

test('splitBy place is the split of 0.1.0: it depends on the folder and its shards', async () => {
  const place = { splitBy: 'place' as const }
  const [one, two] = [
    await evalPart(join(root, 'one/photos'), place),
    await evalPart(join(root, 'two/photos-v2'), place),
  ]
  assert.match(one.ids[0]!, /^photos\/data-00000-of-00001\/\d+$/)
  assert.deepEqual(one.ids, one.places)
  assert.notDeepEqual(one.captions, two.captions)
})

function withIds(path: string, some: readonly GarRow[], ids: readonly (string | null)[]): string {
  const column = (name: keyof GarRow, type: Field['type']) => {
    const plain = (row: GarRow) =>
      name === 'mask_rle' ? { counts: row.mask_rle.counts, size: row.mask_rle.size.map(BigInt) } : row[name]
    return vectorFromArray(some.map(plain) as never[], type)
  }
  const others = garSchema.fields.map((f) => [f.name, column(f.name as keyof GarRow, f.type)] as const)
  const table = new Table({ id: vectorFromArray([...ids], new Utf8()), ...Object.fromEntries(others) } as never)
  mkdirSync(join(path, '..'), { recursive: true })
  writeFileSync(path, tableToIPC(table, 'stream'))
  return path
}

test('the ids of the rows are their keys; a row without an id uses its content', async () => {
  const ids = rows.map((_, i) => (i === 4 ? null : `photo-${i}`))
  const source = await openSource(withIds(join(root, 'own/a.arrow'), rows, ids))
  assert.deepEqual([source.id(0), source.key(3)], ['photo-0', 'photo-3'])
  assert.match(source.id(4), /^[0-9a-f]{16}$/)
  await source.close()
  const changed = rows.map((row) => ({ ...row, conversations: [{ from: 'gpt', value: 'another text' }] }))
  const [before, after] = [join(root, 'own/a.arrow'), withIds(join(root, 'own/b.arrow'), changed, ids)]
  assert.deepEqual(
    (await evalPart(before)).ids.filter((id) => id.startsWith('photo')),
    (await evalPart(after)).ids.filter((id) => id.startsWith('photo')),
  )
})

test('records that repeat an id are reported, told apart by a number, and in one part', async () => {
  const ids = rows.map((_, i) => `image-${i % 20}`)
  const source = await openSource(withIds(join(root, 'own/twice.arrow'), rows, ids))
  assert.deepEqual([source.id(1), source.id(21), source.id(41)], ['image-1', 'image-1#2', 'image-1#3'])
  assert.equal(new Set(Array.from({ length: 60 }, (_, i) => source.id(i))).size, 60)
  assert.match(source.warnings.join(), /twice: 40 records have the id or the content of another one/)
  const part = splitIndices(source, { ...(await defaults({})), split: 'eval', evalFraction: 0.3 })
  await source.close()
  const held = [...part].map((i) => i % 20)
  for (const i of held) assert.equal(held.filter((other) => other === i).length, 3)
})

test('rows with the same mask and text are told apart by their image; true copies are reported', async () => {
  const alike = await Promise.all(
    Array.from({ length: 40 }, async (_, i) => {
      return { ...rows[0]!, image: { bytes: await grey(24, 16, i), path: null } }
    }),
  )
  const folder = await written('alike', [...alike, alike[0]!], 2000)
  const source = await openSource(folder)
  assert.equal(new Set(Array.from({ length: 40 }, (_, i) => source.key(i))).size, 40)
  assert.equal(source.key(40), source.key(0))
  assert.match(source.warnings.join(), /alike: 1 records have the id or the content/)
  await source.close()
  const { captions } = await evalPart(folder)
  assert.ok(captions.length > 4 && captions.length < 25, `${captions.length} of 41`)
})

test('Parquet, COCO and JSONL keep their held-out part under another name', async () => {
  for (const name of ['one', 'two']) {
    mkdirSync(join(root, 'parquet', name), { recursive: true })
    cpSync(join(fixtures, 'train-00000-of-00001.parquet'), join(root, 'parquet', name, 'train-00000-of-00001.parquet'))
  }
  const keys = async (path: string) => {
    const source = await openSource(path)
    await source.close()
    return Array.from({ length: source.length }, (_, i) => [source.id(i), source.key(i)])
  }
  assert.deepEqual(await keys(join(root, 'parquet/one')), await keys(join(root, 'parquet/two')))
  for (const name of ['coco', 'coco2-val2017']) {
    const folder = join(root, name)
    mkdirSync(folder)
    const annotations = [3, 9].map((id) => ({
      id,
      image_id: 1,
      category_id: 1,
      segmentation: [[1, 1, 8, 1, 8, 8, 1, 8]],
    }))
    const file = {
      images: [{ id: 1, file_name: 'a.png', width: 24, height: 16 }],
      categories: [{ id: 1, name: 'box' }],
    }
    writeFileSync(join(folder, 'instances.json'), JSON.stringify({ ...file, annotations }))
    writeFileSync(join(folder, 'a.png'), await grey(24, 16))
    assert.deepEqual(await keys(folder), [['3', '3'], ['9', '9']]) // biome-ignore format: a table
  }
})

test('images of Parquet rows that are read together are those of the rows one by one', async () => {
  for (const name of ['train-00000-of-00001.parquet', 'zstd.parquet']) {
    const pool = new FilePool()
    const file = await ParquetFile.open(join(fixtures, name), pool)
    const rows = Array.from({ length: file.rows }, (_, i) => i).filter((i) => i % 3 !== 1)
    const together: unknown[] = []
    for await (const image of imagesOf(file, rows, 'image')) together.push(image)
    const single = await Promise.all(rows.map(async (i) => (await file.row(i, ['image'], 'image')).image))
    assert.deepEqual(together, single)
    assert.ok(new Set(single.map((image) => JSON.stringify(image))).size > 1, 'they differ')
    await pool.close()
  }
})
