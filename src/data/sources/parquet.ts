// Parquet of the hub's layout: data/SPLIT-00000-of-000NN.parquet, the same columns as the Arrow shards.
import { readdirSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { cachedIndex } from '../cache.ts'
import type { DataConfig } from '../config.ts'
import type { RecordSource } from '../example.ts'
import { FilePool } from '../files.ts'
import { ParquetFile } from '../parquet/file.ts'
import { type Columns, chooseColumns, masksOf, recordsInRow } from './regions.ts'
import { type RowShard, rowSource } from './row-source.ts'
import { missingShards, noneReadable, openEach } from './shards.ts'

/** Parquet files of a folder or of its data/ folder; of one split when names carry splits. */
export function parquetFiles(path: string, config: DataConfig): string[] {
  if (statSync(path).isFile()) return [path]
  for (const folder of [path, join(path, 'data')]) {
    const names = listed(folder)
      .filter((name) => name.endsWith('.parquet'))
      .sort()
    if (names.length === 0) continue
    const ofSplit = names.filter((name) => name.startsWith(`${config.refSplit}-`))
    return (ofSplit.length > 0 ? ofSplit : names).map((name) => join(folder, name))
  }
  return []
}

function listed(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return [] // no such folder: nothing to list
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export class ParquetFile {
  readonly path: string
  readonly metadata: FileMetaData
  readonly #pool: FilePool
  /** The row group read last, without images: its neighbours are often asked for next. */
  #held: { key: string; rows: Promise<Row[]> } | null = null

  constructor(path: string, metadata: FileMetaData, pool: FilePool) {
    this.path = path
    this.metadata = metadata
    this.#pool = pool
  }

  static async open(path: string, pool: FilePool): Promise<ParquetFile> {
    const { parquetMetadataAsync } = await import('hyparquet')
    try {
      return new ParquetFile(path, await parquetMetadataAsync(asBuffer(path, pool)), pool)
    } catch (error) {
      const hint = 'truncated download, or not a Parquet file'
      throw new Mismatch({ where: path, expected: 'a Parquet file', got: error, hint }, { cause: error })
    }
  }

  get rows(): number {
    return Number(this.metadata.num_rows)
  }

  get columns(): string[] {
    return this.metadata.row_groups[0]?.columns.map((c) => c.meta_data?.path_in_schema[0] ?? '').filter(unique) ?? []
  }

  get features(): unknown {
    const text = this.metadata.key_value_metadata?.find((entry) => entry.key === 'huggingface')?.value
    return text ? (JSON.parse(text) as { info?: { features?: unknown } }).info?.features : null
  }

  async range(start: number, end: number, columns: readonly string[]): Promise<Row[]> {
    const [{ parquetReadObjects }, { compressors }] = await Promise.all([
      import('hyparquet'),
      import('hyparquet-compressors'),
    ])
    const rows = await parquetReadObjects({
      file: asBuffer(this.path, this.#pool),
      metadata: this.metadata,
      columns: [...columns],
      rowStart: start,
      rowEnd: end,
      compressors,
      utf8: false,
      useOffsetIndex: true,
      parsers: { stringFromBytes: (bytes: Uint8Array) => strictText(bytes, this.path) },
    })
    return rows.map((row) => plainNumbers(row) as Row)
  }

  /** One row: the small columns of its group are kept, the image is read for the row alone. */
  async row(index: number, names: readonly string[], image: string): Promise<Row> {
    const small = names.filter((name) => name !== image)
    const [start, end] = this.#group(index)
    const key = `${start} ${small.join(' ')}`
    if (this.#held?.key !== key) this.#held = { key, rows: this.range(start, end, small) }
    const row = throwStored({ ...(await this.#held.rows)[index - start]! })
    if (names.includes(image)) row[image] = (await this.range(index, index + 1, [image]))[0]![image]
    return row
  }

  #group(index: number): [number, number] {
    let start = 0
    for (const group of this.metadata.row_groups) {
      const end = start + Number(group.num_rows)
      if (index < end) return [start, end]
      start = end
    }
    throw new Error(`broken invariant: row ${index} of ${this.rows}`)
  }
}

function unique<T>(value: T, index: number, all: readonly T[]): boolean {
  return all.indexOf(value) === index
}

function asBuffer(path: string, pool: FilePool) {
  const byteLength = statSync(path).size
  const slice = async (start: number, end = byteLength): Promise<ArrayBuffer> => {
    const bytes = await pool.read(path, start, end - start)
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer
  }
  return { byteLength, slice }
}

/** Undecodable text is returned: only its own record may fail, not the row group. */
function strictText(bytes: Uint8Array, where: string): string | NotUtf8 {
  try {
    return utf8.decode(bytes)
  } catch {
    return new NotUtf8({
      where,
      field: 'text',
      expected: 'UTF-8 text',
      got: Buffer.from(bytes.subarray(0, 16)).toString('hex'),
    })
  }
}

function throwStored<T>(value: T): T {
  if (value instanceof Mismatch) throw value
  if (Array.isArray(value)) value.forEach(throwStored)
  else if (typeof value === 'object' && value !== null && !ArrayBuffer.isView(value))
    Object.values(value).forEach(throwStored)
  return value
}

function plainNumbers(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value)
  if (Array.isArray(value)) return value.map(plainNumbers)
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value) || value instanceof Mismatch)
    return value
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plainNumbers(v)]))
}

async function countRecords(file: ParquetFile, columns: Columns): Promise<number[]> {
  const counts: number[] = []
  for (const [start, end] of file.stretches()) {
    const rows = await file.range(start, end, [columns.mask, columns.text])
    for (const row of rows) counts.push(recordsInRow(masksOf(row[columns.mask]).length, row[columns.text]))
  }
  return counts
}

interface Opened {
  file: ParquetFile
  columns: Columns
  shard: RowShard
}

/** A file whose footer, columns and small pages can be read; what is found out later spoils single records. */
async function openOne(path: string, pool: FilePool): Promise<Opened> {
  const file = await ParquetFile.open(path, pool)
  const columns = chooseColumns(file.columns, file.features, path)
  return { file, columns, shard: await toShard(file, columns) }
}

export async function openParquet(path: string, config: DataConfig): Promise<RecordSource> {
  return await FilePool.opening(async (pool) => await openFiles(path, config, pool))
}

async function openFiles(path: string, config: DataConfig, pool: FilePool): Promise<RecordSource> {
  const files = parquetFiles(path, config)
  const { good, broken } = await openEach(files, config, (file) => openOne(file, pool))
  const first = good[0]
  if (!first) throw noneReadable(path, 'Parquet file', broken)
  const single = statSync(path).isFile()
  return rowSource(
    {
      name: basename(single ? path : path.replace(/\/data$/, '')).replace(/\.parquet$/, ''),
      format: `Parquet (${good.length} files)`,
      folder: single ? dirname(path) : path,
      columns: first.columns,
      schema: first.file.metadata.schema.slice(1).map((e) => `${e.name}: ${e.logical_type?.type ?? e.type ?? 'group'}`),
      warnings: [
        ...(single ? [] : missingShards(path, files)),
        ...largeGroups(good.map(({ file }) => file)),
        ...broken.map((b) => `skipped: ${b.message}`),
      ],
      broken,
      relation: config.relation,
      close: () => pool.close(),
    },
    good.map(({ shard }) => shard),
  )
}

async function toShard(file: ParquetFile, columns: Columns): Promise<RowShard> {
  const perRow = await cachedIndex({ kind: 'parquet-2', files: [file.path] }, () => countRecords(file, columns))
  return {
    path: file.path,
    label: basename(file.path).replace(/\.parquet$/, ''),
    size: file.size,
    rows: file.rows,
    perRow: perRow.every((n) => n === 1) ? null : perRow,
    row: (index, names) => file.row(index, names, columns.image),
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
