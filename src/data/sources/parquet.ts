// Parquet of the hub's layout: data/SPLIT-00000-of-000NN.parquet, the same columns as the Arrow shards.
import { statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { namesIn } from '../../core/index.ts'
import { cachedIndex } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import type { RecordSource } from '../example.ts'
import type { FilePool } from '../files.ts'
import { ParquetFile } from '../parquet/file.ts'
import { schemaLines } from '../parquet/schema-text.ts'
import { type Columns, chooseColumns, masksOf, recordsInRow } from './regions.ts'
import { keyColumns, rowKey } from './row-keys.ts'
import { oneByOne, type RowShard, rowSource } from './row-source.ts'
import { missingShards, noneReadable, openEach } from './shards.ts'

/** Parquet files of a folder or of its data/ folder; of one split when names carry splits. */
export function parquetFiles(path: string, config: DataConfig): string[] {
  if (statSync(path).isFile()) return [path]
  for (const folder of [path, join(path, 'data')]) {
    const names = namesIn(folder, /\.parquet$/)
    if (names.length === 0) continue
    const ofSplit = names.filter((name) => name.startsWith(`${config.refSplit}-`))
    return (ofSplit.length > 0 ? ofSplit : names).map((name) => join(folder, name))
  }
  return []
}

async function countRecords(file: ParquetFile, columns: Columns): Promise<{ counts: number[]; keys: string[] }> {
  const counts: number[] = []
  const keys: string[] = []
  for (const [start, end] of file.stretches()) {
    const rows = await file.range(start, end, keyColumns(columns))
    for (const row of rows) counts.push(recordsInRow(masksOf(row[columns.mask]).length, row[columns.text]))
    for (const row of rows) keys.push(rowKey(row, columns))
  }
  return { counts, keys }
}

interface Opened {
  file: ParquetFile
  columns: Columns
  shard: RowShard
}

/** Opens a file whose footer, columns and small pages can be read. Damage found later rejects single records. */
async function openOne(path: string, pool: FilePool): Promise<Opened> {
  const file = await ParquetFile.open(path, pool)
  const columns = chooseColumns(file.columns, file.datasetInfo, path)
  return { file, columns, shard: await toShard(file, columns) }
}

export async function openParquet(path: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const files = parquetFiles(path, config)
  const { good, broken } = await openEach(files, config, (file) => openOne(file, pool))
  const first = good[0]
  if (!first) throw noneReadable(path, 'Parquet file', broken)
  const single = statSync(path).isFile()
  return await rowSource(
    {
      name: basename(single ? path : path.replace(/\/data$/, '')).replace(/\.parquet$/, ''),
      format: `Parquet (${good.length} file${good.length === 1 ? '' : 's'})`,
      folder: single ? dirname(path) : path,
      columns: first.columns,
      schema: schemaLines(first.file.metadata.schema),
      warnings: [
        ...(single ? [] : missingShards(path, files)),
        ...largeGroups(good.map(({ file }) => file)),
        ...broken.map((b) => `skipped: ${b.message}`),
      ],
      broken,
      relation: config.relation,
    },
    good.map(({ shard }) => shard),
  )
}

async function toShard(file: ParquetFile, columns: Columns): Promise<RowShard> {
  const build = () => countRecords(file, columns)
  const { counts, keys } = await cachedIndex({ kind: 'parquet-3', files: [file.path] }, build)
  return {
    path: file.path,
    label: basename(file.path).replace(/\.parquet$/, ''),
    size: file.size,
    rows: file.rows,
    perRow: counts.every((n) => n === 1) ? null : counts,
    keys,
    row: (index, names) => file.row(index, names, columns.image),
    images: (rows) => imagesOf(file, rows, columns.image),
  }
}

/** Neighbouring images are read together: one at a time costs a page or, without a page index, a whole group each. */
export async function* imagesOf(file: ParquetFile, rows: readonly number[], image: string): AsyncGenerator {
  for (let i = 0; i < rows.length; ) {
    const first = rows[i]!
    const end = file.endTogether(first, image)
    const from = i
    while (i < rows.length && rows[i]! < end) i++
    const some = rows.slice(from, i)
    const read = await file.range(first, some.at(-1)! + 1, [image]).catch(() => null)
    if (read) for (const row of some) yield read[row - first]![image]
    else yield* oneByOne(some, async (row) => (await file.range(row, row + 1, [image]))[0]![image])
  }
}

/** Without a page index one image costs its whole column chunk. */
function largeGroups(files: readonly ParquetFile[]): string[] {
  const groups = files.flatMap((f) => f.metadata.row_groups)
  const largest = groups.reduce((max, g) => Math.max(max, Number(g.total_byte_size)), 0)
  const indexed = groups.every((g) => g.columns.every((c) => c.offset_index_offset !== undefined))
  if (indexed || largest < 64 * 1024 * 1024) return []
  const size = Math.round(largest / 1024 / 1024)
  return [
    `row groups of up to ${size} MiB without a page index: a random read costs a whole group; Arrow shards read faster`,
  ]
}
