// Seg-Zero's layout: Arrow or Parquet shards with id, problem, solution `<box>(x1,y1),(x2,y2)</box><points>(..),(..)</points>` in a frame
// of 840 x 840, image, img_height, img_width; and a folder of mask PNGs named by id. A missing mask is an error, never a box.
// VisionReasoner's solution is a JSON list with bbox_2d and point_2d of each object. Published images are stretched to the frame.
import { existsSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { Mismatch, namesIn, sha256, tryJson } from '../../core/index.ts'
import { imageInfo } from '../../image/index.ts'
import { type Mask, maskFromPng, resizeMaskNearest } from '../../mask/index.ts'
import { scanShard } from '../arrow/messages.ts'
import { RowReader } from '../arrow/rows.ts'
import { cachedIndex } from '../cache.ts'
import { asBadRecord, BadRecord, type RecordSource, type Region } from '../example.ts'
import { type FilePool, readStored } from '../files.ts'
import { GroupedRecords } from '../grouped-records.ts'
import { ParquetFile } from '../parquet/file.ts'
import { PackedStrings } from '../strings.ts'
import { imageOf, nonEmpty } from './regions.ts'
import { type RowShard, readRow } from './row-source.ts'

const frame = 840

type Shard = Pick<RowShard, 'path' | 'rows' | 'row'>

/** `masks`: the folder of PNGs, value above 127 = object. */
export async function openSegZero(path: string, masks: string, pool: FilePool): Promise<RecordSource> {
  const files = shardFiles(path)
  const shards: Shard[] = []
  for (const file of files) shards.push(await openShard(file, pool))
  const records = new GroupedRecords(shards.map((shard) => shard.rows))
  const { length } = records
  const name = basename(path).replace(/\.(arrow|parquet)$/, '')
  const keys = new PackedStrings(await cachedIndex({ kind: 'seg-zero-ids-1', files }, () => idsOf(shards)))
  return {
    name,
    format: 'Seg-Zero shards with a folder of masks',
    length,
    fingerprint: sha256(JSON.stringify([name, files.map((f) => statSync(f).size), length])),
    schema: ['id, problem, solution, image, img_height, img_width; masks by id'],
    id: (index) => `${name}/${index}`,
    key: (index) => keys.at(index) || String(index),
    region: async (index, options) => {
      const [shard, row] = records.find(index)
      return await regionOf(shards[shard]!, row, masks, options?.image !== false)
    },
  }
}

/** The ids of all rows; empty for a row that cannot be read, which is rejected when it is used. */
async function idsOf(shards: readonly Shard[]): Promise<string[]> {
  const ids: string[] = []
  for (const shard of shards)
    for (let row = 0; row < shard.rows; row++)
      ids.push(String((await shard.row(row, ['id']).catch(() => null))?.['id'] ?? ''))
  return ids
}

function shardFiles(path: string): string[] {
  if (!existsSync(path)) throw new Mismatch({ where: path, expected: 'Seg-Zero shards', got: 'nothing there' })
  if (statSync(path).isFile()) return [path]
  const names = namesIn(path, /^(?!cache-).*\.(arrow|parquet)$/)
  if (names.length > 0) return names.map((n) => join(path, n))
  throw new Mismatch({ where: path, expected: 'files ending in .arrow or .parquet', got: 'none' })
}

async function openShard(path: string, pool: FilePool): Promise<Shard> {
  if (path.endsWith('.parquet')) {
    const file = await ParquetFile.open(path, pool)
    return { path, rows: file.rows, row: (index, names) => file.row(index, names, 'image') }
  }
  const index = await scanShard(path)
  const reader = await RowReader.open(path, pool, index)
  return { path, rows: reader.rows, row: (at, names) => reader.row(at, names) }
}

async function regionOf(shard: Shard, row: number, masks: string, withImage: boolean): Promise<Region> {
  const where = `${shard.path}: row ${row}`
  const columns = ['id', 'problem', 'solution', 'img_height', 'img_width']
  const values = await readRow(shard, row, withImage ? [...columns, 'image'] : columns)
  const id = String(values['id'] ?? '')
  const size = { width: Number(values['img_width']), height: Number(values['img_height']) }
  const mask = await readMask(masks, id, where)
  if (mask.width !== size.width || mask.height !== size.height) {
    const [expected, got] = [size, mask].map((s) => `${s.width} x ${s.height}`) as [string, string]
    throw new BadRecord('size-mismatch', { where, field: 'mask', expected, got })
  }
  const image = withImage ? imageOf(values['image'], where) : null
  const shown = (await isStretched(image, where)) ? { width: frame, height: frame } : size
  return {
    id,
    where,
    image,
    mask: shown === size ? mask : resizeMaskNearest(mask, frame, frame),
    caption: nonEmpty(String(values['problem'] ?? ''), where, 'problem'),
    meta: { row, ...placesOf(String(values['solution'] ?? ''), shown, where) },
  }
}

/** Whether the image has the size of the frame; img_height and img_width are those of the original. */
async function isStretched(image: Region['image'], where: string): Promise<boolean> {
  if (!image || !('bytes' in image)) return false
  const { width, height } = await imageInfo(image.bytes, where).catch(() => ({ width: 0, height: 0 })) // decoding will say why
  return width === frame && height === frame
}

async function readMask(folder: string, id: string, where: string): Promise<Mask> {
  const path = join(folder, `${id}.png`)
  if (!/^[^/\\\u0000]+$/.test(id) || !existsSync(path)) {
    const hint = 'masks are PNG files named by id; a box is never taken for a mask'
    throw new BadRecord('no-mask', { where, field: 'id', expected: `a mask ${path}`, got: 'no such file', hint })
  }
  try {
    return await maskFromPng(await readStored(path), path)
  } catch (error) {
    throw asBadRecord(error, 'mask-unreadable', where, 'mask')
  }
}

/** Box and points of a solution, or several objects, as pixel indices of the image. */
export function placesOf(solution: string, { width, height }: { width: number; height: number }, where: string) {
  const moved = (values: readonly number[]) => values.map((v, i) => index(v, i % 2 === 0 ? width : height))
  const listed = objectsIn(solution)
  if (listed?.length === 0) return {}
  if (listed) return { objects: listed.map((one) => ({ box: moved(one.bbox_2d), point: moved(one.point_2d) })) }
  const pairs = (tag: string): [number, number][] => {
    const start = solution.indexOf(`<${tag}>`)
    const end = start < 0 ? -1 : solution.indexOf(`</${tag}>`, start)
    const found = (end < 0 ? '' : solution.slice(start, end)).matchAll(/\(\s*(-?[\d.]+)\s*,\s*(-?[\d.]+)\s*\)/g)
    return [...found].map(([, x, y]) => moved([Number(x), Number(y)]) as [number, number])
  }
  const [box, points] = [pairs('box'), pairs('points')]
  if (box.length === 2 && points.length > 0) return { box: box.flat(), points }
  const expected = '<box>(x1,y1),(x2,y2)</box><points>(x,y),..</points>, or a list of bbox_2d and point_2d'
  throw new BadRecord('bad-record', { where, field: 'solution', expected, got: solution })
}

/** VisionReasoner's objects; null: not such a list. */
function objectsIn(solution: string): { bbox_2d: number[]; point_2d: number[] }[] | null {
  const isList = (value: unknown, length: number) =>
    Array.isArray(value) && value.length === length && value.every(Number.isFinite)
  const list = tryJson(solution)
  const isObjects = Array.isArray(list) && list.every((one) => isList(one?.bbox_2d, 4) && isList(one?.point_2d, 2))
  return isObjects ? list : null
}

function index(value: number, side: number): number {
  return Math.max(0, Math.min(side - 1, Math.floor((value * side) / frame)))
}
