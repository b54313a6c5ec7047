// Records of shards with rows. Arrow and Parquet differ only in how a row is read.
import { isAbsolute, join } from 'node:path'
import { Mismatch, sha256 } from '../../core/index.ts'
import { cachedIndex } from '../cache.ts'
import { asBadRecord, type RecordSource, type Region, type RegionOptions, type Source } from '../example.ts'
import { GroupedRecords } from '../grouped-records.ts'
import { NotUtf8, PackedStrings } from '../strings.ts'
import { type Columns, imageOf, regionOfRow } from './regions.ts'
import { withImages } from './row-keys.ts'

export interface RowShard {
  path: string
  /** Name inside ids, without extension. */
  label: string
  size: number
  rows: number
  /** Records per row as `recordsInRow` counts them; null when every row is one record. */
  perRow: readonly number[] | null
  /** The key of each row: row-keys.ts. */
  keys: readonly string[]
  row(index: number, columns: readonly string[]): Promise<Record<string, unknown>>
  /** Images of rows in ascending order, as stored; undefined for one that cannot be read. */
  images(rows: readonly number[]): AsyncIterable<unknown>
}

interface RowSourceInfo extends Pick<Source, 'name' | 'format' | 'schema' | 'warnings' | 'broken'> {
  /** Image paths are relative to it. */
  folder: string
  columns: Columns
  relation: 'skip' | 'first'
}

interface Placed {
  shard: RowShard
  row: number
  region: number
  split: boolean
}

/** Values one row at a time; undefined for one that cannot be read. */
export async function* oneByOne(rows: readonly number[], read: (row: number) => Promise<unknown>): AsyncGenerator {
  for (const row of rows) yield await read(row).catch(() => undefined)
}

/** The records of each row of a shard; null if every row is one record. */
function recordsOf({ perRow }: RowShard, relation: 'skip' | 'first'): GroupedRecords | null {
  const named = relation === 'first' ? 1 : 0 // records of a row whose text names its regions
  return perRow && new GroupedRecords(perRow.map((n) => (n >= 0 ? n : named)))
}

export async function rowSource(info: RowSourceInfo, shards: readonly RowShard[]): Promise<RecordSource> {
  const rowsOf = shards.map((shard) => recordsOf(shard, info.relation))
  const records = new GroupedRecords(shards.map((shard, i) => rowsOf[i]?.length ?? shard.rows))
  const { length } = records
  const { name, format, schema, warnings, broken } = info
  const named = shards.reduce((sum, shard) => sum + (shard.perRow?.filter((n) => n < 0).length ?? 0), 0)

  const place = (index: number): Placed => {
    const [s, position] = records.find(index)
    const shard = shards[s]!
    const [row, region] = rowsOf[s]?.find(position) ?? [position, 0]
    return { shard, row, region, split: (shard.perRow?.[row] ?? 1) > 1 }
  }
  const idOf = ({ shard, row, region, split }: Placed) =>
    `${info.name}/${shard.label}/${row}${split ? `/${region}` : ''}`

  const keys = await rowKeys(info, shards)
  const keyOf = ({ shard, row, region, split }: Placed) => `${keys.get(shard)!.at(row)}${split ? `/${region}` : ''}`

  return {
    ...{ name, format, length, schema, warnings, broken },
    fingerprint: sha256(
      JSON.stringify([info.name, info.relation, shards.map((s) => [s.label, s.size, s.rows]), length]),
    ),
    leftOut:
      named > 0 && info.relation === 'skip'
        ? { 'relation (text names several regions; setting data.relation)': named }
        : {},
    id: (index) => idOf(place(index)),
    key: (index) => keyOf(place(index)),
    region: async (index, options) => {
      const placed = place(index)
      return await readRegion(info, placed, idOf(placed), options)
    },
  }
}

/** Keys of the rows of every shard. Rows with the same key are distinguished by their images; the result is cached. */
async function rowKeys(info: RowSourceInfo, shards: readonly RowShard[]): Promise<Map<RowShard, PackedStrings>> {
  const all = shards.flatMap((shard) => shard.keys)
  const starts = [0]
  for (const shard of shards) starts.push(starts.at(-1)! + shard.keys.length)
  const images = async function* (rows: readonly number[]) {
    let at = 0
    for (const [i, shard] of shards.entries()) {
      const own: number[] = []
      for (; at < rows.length && rows[at]! < starts[i + 1]!; at++) own.push(rows[at]! - starts[i]!)
      yield* shard.images(own)
    }
  }
  const files = shards.map(({ path }) => path)
  const build = async () => [...(await withImages(all, images))]
  const found = info.columns.id === null ? await cachedIndex({ kind: 'row-images-1', files }, build) : []
  for (const [index, key] of found) all[index] = key
  return new Map(shards.map((shard, i) => [shard, new PackedStrings(all.slice(starts[i], starts[i + 1]))]))
}

/** Some columns of a row; one that cannot be read is a record that is rejected with its reason. */
export async function readRow(shard: Pick<RowShard, 'path' | 'row'>, row: number, names: readonly string[]) {
  try {
    return await shard.row(row, names)
  } catch (error) {
    const field = (error instanceof Mismatch && error.info.field) || 'row'
    throw asBadRecord(error, error instanceof NotUtf8 ? 'not-utf8' : 'bad-record', `${shard.path}: row ${row}`, field)
  }
}

async function readRegion(info: RowSourceInfo, placed: Placed, id: string, options?: RegionOptions): Promise<Region> {
  const { shard, row, region, split } = placed
  const where = `${shard.path}: row ${row}`
  const { columns } = info
  const names = [columns.mask, columns.text, ...(columns.category === null ? [] : [columns.category])]
  const withImage = options?.image !== false
  if (withImage) names.push(columns.image)
  const values = await readRow(shard, row, names)
  const found = await regionOfRow(values, columns, region, split, where)
  const meta = { source: info.name, shard: shard.label, row }
  const image = withImage ? imageOf(values[columns.image], where) : null
  if (image && 'path' in image && !isAbsolute(image.path)) image.path = join(info.folder, image.path)
  return { id, where, image, ...found, meta }
}
