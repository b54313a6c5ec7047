// One Parquet file, read a few rows at a time; the pages pass the checks of pages.ts before the decoder sees them.
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import type { AsyncBuffer, FileMetaData, ParquetReadOptions } from 'hyparquet'
import type { Compressors, PageLocation } from 'hyparquet/src/types.js'
import { Mismatch, messageOf, refuseFailedDownload, regularFile } from '../../core/index.ts'
import { damagedHint, FilePool } from '../files.ts'
import { GroupedRecords } from '../grouped-records.ts'
import { strictText } from '../strings.ts'
import { type Chunk, checkMetadata } from './metadata.ts'
import { checkLocations, PageChecker, type Unpack } from './pages.ts'

export type Row = Record<string, unknown>

const stretch = 16 * 1024 * 1024

/** The packages, loaded when the first file is opened. */
async function loadTools() {
  const [core, plan, group, column, indexes, packed] = await Promise.all([
    import('hyparquet'),
    import('hyparquet/src/plan.js'),
    import('hyparquet/src/rowgroup.js'),
    import('hyparquet/src/column.js'),
    import('hyparquet/src/indexes.js'),
    import('hyparquet-compressors'),
  ])
  return { ...core, ...plan, ...group, ...column, ...indexes, ...packed }
}
type Tools = Awaited<ReturnType<typeof loadTools>>

/** Unpackers that write at most the bytes the page header names. */
function unpackers(tools: Tools): Record<string, Unpack> {
  const { SNAPPY, LZ4, LZ4_RAW } = tools.compressors
  return {
    ...(SNAPPY && { SNAPPY }),
    ...(LZ4 && { LZ4 }),
    ...(LZ4_RAW && { LZ4_RAW }),
    GZIP: (packed, length) => gunzipSync(packed, { maxOutputLength: Math.max(1, length) }),
    BROTLI: (packed, length) => brotliDecompressSync(packed, { maxOutputLength: Math.max(1, length) }),
    ZSTD: (packed, length) => tools.decompressZstd(packed, new Uint8Array(length)),
  }
}

export class ParquetFile {
  readonly path: string
  readonly metadata: FileMetaData
  readonly size: number
  readonly #pool: FilePool
  readonly #tools: Tools
  readonly #chunks: Chunk[]
  readonly #groups: GroupedRecords
  readonly #unpackers: Record<string, Unpack>
  /** The row group read last, without images: its other rows are often read next. */
  #lastGroup: { key: string; rows: Promise<Row[]> } | null = null

  private constructor(path: string, metadata: FileMetaData, pool: FilePool, tools: Tools, size: number) {
    this.path = path
    this.metadata = metadata
    this.size = size
    this.#pool = pool
    this.#tools = tools
    this.#chunks = checkMetadata(metadata, size, path)
    this.#groups = new GroupedRecords(metadata.row_groups.map((group) => Number(group.num_rows)))
    this.#unpackers = unpackers(tools)
  }

  static async open(path: string, pool: FilePool): Promise<ParquetFile> {
    const { size } = regularFile(path)
    pool.watch(path)
    refuseFailedDownload(await pool.read(path, 0, Math.min(64, size)), path, 'a Parquet file')
    const tools = await loadTools()
    try {
      const metadata = await tools.parquetMetadataAsync(asBuffer(path, size, pool), { geoparquet: false })
      return new ParquetFile(path, metadata, pool, tools, size)
    } catch (error) {
      if (error instanceof Mismatch) throw error
      const hint = 'truncated download, or not a Parquet file'
      throw new Mismatch({ where: path, expected: 'a Parquet file', got: error, hint }, { cause: error })
    }
  }

  get rows(): number {
    return Number(this.metadata.num_rows)
  }

  get columns(): string[] {
    const columns = this.metadata.row_groups[0]?.columns ?? []
    return [...new Set(columns.map((c) => c.meta_data?.path_in_schema[0] ?? ''))]
  }

  /** Metadata of Hugging Face datasets. */
  get datasetInfo(): string | undefined {
    return this.metadata.key_value_metadata?.find((entry) => entry.key === 'huggingface')?.value
  }

  async range(start: number, end: number, columns: readonly string[]): Promise<Row[]> {
    try {
      const rows = await this.#decode(start, end, columns)
      if (rows.length !== end - start) throw new RangeError(`${rows.length} rows were there`)
      return rows.map((row) => plainValues(row) as Row)
    } catch (error) {
      if (error instanceof Mismatch) throw error
      const field = `rows ${start} to ${end - 1} of ${columns.join(', ')}`
      const info = { where: this.path, field, expected: 'readable pages', got: messageOf(error), hint: damagedHint }
      throw new Mismatch(info, { cause: error })
    }
  }

  async #decode(start: number, end: number, columns: readonly string[]): Promise<Row[]> {
    const { parquetPlan, parquetSchema, readRowGroup, assembleAsync, asyncGroupToRows } = this.#tools
    const options: ParquetReadOptions = {
      file: this.#checkedBuffer(),
      metadata: this.metadata,
      columns: [...columns],
      rowStart: start,
      rowEnd: end,
      compressors: this.#unpackers as Compressors,
      utf8: false,
      useOffsetIndex: true,
      parsers: { stringFromBytes: (bytes: Uint8Array) => strictText(bytes, this.path, 'text') },
    }
    const plan = parquetPlan(options)
    const schema = parquetSchema(this.metadata)
    const rows: Row[] = []
    for (const group of plan.groups) {
      const read = readRowGroup(options, plan, group)
      for (const column of read.asyncColumns) column.data.catch(() => undefined) // the first that fails is reported
      const whole = assembleAsync(read, schema, options.parsers)
      for (const column of whole.asyncColumns) column.data.catch(() => undefined)
      for (const row of await asyncGroupToRows(whole, group.selectStart, group.selectEnd, [...columns], 'object'))
        rows.push(row)
    }
    return rows
  }

  /** Reads whole columns, stretches of pages and page indexes, each checked as what it is. */
  #checkedBuffer(): AsyncBuffer {
    const plain = asBuffer(this.path, this.size, this.#pool)
    const tools = { header: this.#tools.parquetHeader, unpacker: (codec: string) => this.#unpacker(codec) }
    const locations = new Map<Chunk, PageLocation[]>()
    const checkers = new Map(this.#chunks.map((chunk) => [chunk, new PageChecker(chunk, this.path, tools)]))
    let before: Promise<unknown> = Promise.resolve() // a dictionary is asked for before the pages that need it
    const read = async (start: number, end: number): Promise<ArrayBuffer> => {
      const bytes = await plain.slice(start, end)
      const chunk = this.#chunks.find((c) => c.begin <= start && end <= c.end)
      if (chunk) checkers.get(chunk)!.check(bytes, start, locations.get(chunk) ?? null)
      else locations.set(...this.#pageIndex(bytes, start))
      return bytes
    }
    const slice = (start: number, end = this.size): Promise<ArrayBuffer> => {
      const mine = before.then(() => read(start, end))
      before = mine.catch(() => undefined)
      return mine
    }
    return { byteLength: this.size, slice }
  }

  #pageIndex(bytes: ArrayBuffer, start: number): [Chunk, PageLocation[]] {
    const chunk = this.#chunks.find((c) => c.index.length > 0 && c.index.begin === start)
    if (!chunk) throw new Mismatch({ where: this.path, field: `byte ${start}`, expected: 'pages', got: 'other bytes' })
    const { page_locations: pages } = this.#tools.readOffsetIndex({ view: new DataView(bytes), offset: 0 })
    checkLocations(pages, chunk, this.path)
    return [chunk, pages]
  }

  #unpacker(codec: string): Unpack | null {
    if (codec === 'UNCOMPRESSED') return null
    const found = this.#unpackers[codec]
    if (found) return found
    const expected = Object.keys(this.#unpackers).join(', ')
    throw new Mismatch({ where: this.path, field: 'codec', expected, got: codec })
  }

  /** One row: the small columns of its group are kept, the image is read for the row alone. */
  async row(index: number, names: readonly string[], image: string): Promise<Row> {
    const small = names.filter((name) => name !== image)
    const [start, end] = this.#group(index)
    const key = `${start} ${small.join(' ')}`
    if (this.#lastGroup?.key !== key) this.#lastGroup = { key, rows: this.range(start, end, small) }
    const row = throwStored({ ...(await this.#lastGroup.rows)[index - start]! })
    if (names.includes(image)) row[image] = (await this.range(index, index + 1, [image]))[0]![image]
    return row
  }

  /** End of the rows that are best read together from `first` on: about 16 MiB of a column, or the rest of a group without a page index. */
  endTogether(first: number, column: string): number {
    const [start, end, group] = this.#group(first)
    const chunks = this.#chunks.filter((c) => c.group === group && c.path.split('.')[0] === column)
    if (chunks.some((c) => c.index.length === 0)) return end
    const bytes = chunks.reduce((sum, c) => sum + c.end - c.begin, 0)
    return Math.min(end, first + Math.max(1, Math.floor((stretch / Math.max(1, bytes)) * (end - start))))
  }

  /** First row, end row and number of the group of a row. */
  #group(index: number): [number, number, number] {
    const [number, position] = this.#groups.find(index)
    const start = index - position
    return [start, start + Number(this.metadata.row_groups[number]!.num_rows), number]
  }

  /** First and end row of stretches that are read together: a row group, or part of a large one. */
  *stretches(most = 20_000): Generator<[number, number]> {
    let start = 0
    for (const group of this.metadata.row_groups) {
      const end = start + Number(group.num_rows)
      for (; start < end; start = Math.min(end, start + most)) yield [start, Math.min(end, start + most)]
    }
  }
}

/** All rows of a small file. */
export async function readParquet(path: string): Promise<Row[]> {
  const pool = new FilePool()
  try {
    const file = await ParquetFile.open(path, pool)
    const rows: Row[] = []
    for (const [start, end] of file.stretches())
      rows.push(...(await file.range(start, end, file.columns)).map(throwStored))
    return rows
  } finally {
    await pool.close()
  }
}

function asBuffer(path: string, byteLength: number, pool: FilePool): AsyncBuffer {
  const slice = async (start: number, end = byteLength): Promise<ArrayBuffer> => {
    const bytes = await pool.read(path, start, end - start)
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer
  }
  return { byteLength, slice }
}

function throwStored<T>(value: T): T {
  if (value instanceof Mismatch) throw value
  if (Array.isArray(value)) value.forEach(throwStored)
  else if (typeof value === 'object' && value !== null && !ArrayBuffer.isView(value))
    Object.values(value).forEach(throwStored)
  return value
}

/** Whole numbers as numbers, nothing as null. */
function plainValues(value: unknown): unknown {
  if (value === undefined) return null
  if (typeof value === 'bigint') return Number(value)
  if (Array.isArray(value)) return value.map(plainValues)
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value) || value instanceof Mismatch)
    return value
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plainValues(v)]))
}
