import { type DataType, type Schema, Type } from 'apache-arrow'
import { assert, Mismatch } from '../../core/index.ts'
import type { FilePool } from '../files.ts'
import { GroupedRecords } from '../grouped-records.ts'
import { strictText } from '../strings.ts'
import { type BatchHeader, type BufferPlace, type Column, offsetBits } from './layout.ts'
import { type BatchEntry, decodeMessage, SchemaChecks, type ShardIndex } from './messages.ts'

interface Batch {
  rows: number
  /** Values of each node of the schema tree. */
  lengths: number[]
  /** Absolute offsets in the file. */
  buffers: BufferPlace[]
}

/** Limit on the values of one list or row; no caption, mask or conversation has more. */
const maxValues = 4_000_000
const maxBytes = 2 ** 31 - 1 // of one read

/** Reads single rows of one shard: the offsets of the row, then exactly its bytes. */
export class RowReader {
  readonly path: string
  readonly schema: Schema
  readonly #pool: FilePool
  readonly #index: ShardIndex
  readonly #columns: Column[]
  readonly #checks: SchemaChecks
  readonly #records: GroupedRecords
  readonly #batches = new Map<number, Promise<Batch>>()
  readonly #dictionaries = new Map<number, Promise<unknown[]>>()

  private constructor(path: string, pool: FilePool, index: ShardIndex, schema: Schema, checks: SchemaChecks) {
    this.path = path
    this.#pool = pool
    this.#index = index
    this.schema = schema
    this.#checks = checks
    this.#columns = checks.columns
    this.#records = new GroupedRecords(index.batches.map((batch) => batch.rows))
  }

  static async open(path: string, pool: FilePool, index: ShardIndex): Promise<RowReader> {
    const checks = new SchemaChecks(path)
    const bytes = await pool.read(path, index.schemaOffset, index.schemaLength)
    const schema = checks.schema(decodeMessage(bytes, path, index.schemaOffset), index.schemaOffset)
    return new RowReader(path, pool, index, schema, checks)
  }

  get rows(): number {
    return this.#index.rows
  }

  get batchCount(): number {
    return this.#index.batches.length
  }

  /** The named columns of one row; columns the shard lacks are left out. */
  async row(index: number, names: readonly string[]): Promise<Record<string, unknown>> {
    const [at, inBatch] = this.#records.find(index)
    const batch = await this.#batch(at)
    const out: Record<string, unknown> = {}
    for (const column of this.#columns) {
      if (names.includes(column.name)) out[column.name] = (await this.#read(batch, column, inBatch, 1, column.name))[0]
    }
    return out
  }

  rowsIn(batchIndex: number): number {
    return this.#index.batches[batchIndex]!.rows
  }

  /** The named columns of every row of a batch. */
  async rowsOf(batchIndex: number, names: readonly string[]): Promise<Record<string, unknown>[]> {
    const batch = await this.#batch(batchIndex)
    const out = Array.from({ length: batch.rows }, (): Record<string, unknown> => ({}))
    for (const column of this.#columns.filter(({ name }) => names.includes(name))) {
      const values = await this.#read(batch, column, 0, batch.rows, column.name)
      for (const [i, row] of out.entries()) row[column.name] = values[i]
    }
    return out
  }

  /** Lengths of a list column for every row of a batch, from its offsets alone; 0 where the list is null. */
  async listLengths(batchIndex: number, path: readonly string[]): Promise<number[]> {
    const batch = await this.#batch(batchIndex)
    let level = this.#columns
    let column: Column | undefined
    for (const name of path) {
      column = level.find((c) => c.name === name)
      level = column?.children ?? []
    }
    assert(column, `column ${path.join('.')} exists`)
    const offsets = await this.#offsets(batch, column, 0, batch.rows, path.join('.'))
    const valid = await this.#validity(batch, column, 0, batch.rows)
    return Array.from({ length: batch.rows }, (_, i) => (valid(i) ? offsets[i + 1]! - offsets[i]! : 0))
  }

  /** Buffer offsets of a batch, decoded on demand; the last few are cached. */
  async #batch(index: number): Promise<Batch> {
    const known = this.#batches.get(index)
    if (known) return await known
    const batch = this.#readBatch(this.#index.batches[index]!)
    this.#batches.set(index, batch)
    if (this.#batches.size > 16) this.#batches.delete(this.#batches.keys().next().value!)
    return await batch
  }

  async #readBatch(entry: BatchEntry): Promise<Batch> {
    const bytes = await this.#pool.read(this.path, entry.metaOffset, entry.metaLength)
    return placed(this.#checks.batch(decodeMessage(bytes, this.path, entry.metaOffset), entry), entry.bodyOffset)
  }

  async #bytes(batch: Batch, buffer: number, offset: number, length: number): Promise<Buffer> {
    const place = batch.buffers[buffer]
    if (!place || offset + length > place.length || offset < 0) {
      const got = `bytes ${offset} to ${offset + length} of a buffer of ${place?.length ?? 0}`
      throw new Mismatch({ where: this.path, field: `buffer ${buffer}`, expected: 'offsets inside the buffer', got })
    }
    if (length > maxBytes) {
      const expected = `a value of at most ${maxBytes} bytes`
      throw new Mismatch({ where: this.path, field: `buffer ${buffer}`, expected, got: length })
    }
    return await this.#pool.read(this.path, place.offset + offset, length)
  }

  async #validity(batch: Batch, column: Column, start: number, count: number): Promise<(i: number) => boolean> {
    if (column.type.typeId === Type.Null) return () => false
    if ((batch.buffers[column.buffer]?.length ?? 0) === 0 || count === 0) return () => true
    return await this.#bits(batch, column.buffer, start, count)
  }

  async #bits(batch: Batch, buffer: number, start: number, count: number): Promise<(i: number) => boolean> {
    const first = start >> 3
    const bits = await this.#bytes(batch, buffer, first, ((start + count - 1) >> 3) - first + 1)
    return (i) => ((bits[((start + i) >> 3) - first]! >> ((start + i) & 7)) & 1) === 1
  }

  async #offsets(batch: Batch, column: Column, start: number, count: number, field: string): Promise<number[]> {
    const wide = offsetBits(column.type) === 64
    const width = wide ? 8 : 4
    const bytes = await this.#bytes(batch, column.buffer + 1, start * width, (count + 1) * width)
    const offsets = Array.from({ length: count + 1 }, (_, i) =>
      wide ? Number(bytes.readBigInt64LE(i * 8)) : bytes.readInt32LE(i * 4),
    )
    const [child] = column.children
    const most = child ? batch.lengths[child.node]! : batch.buffers[column.buffer + 2]!.length
    const wrong = offsets.findIndex((at, i) => at < (offsets[i - 1] ?? 0) || at > most)
    if (wrong < 0) return offsets
    const expected = `rising offsets from 0 to ${most}`
    throw new Mismatch({ where: this.path, field, expected, got: `${offsets[wrong - 1] ?? 0}, then ${offsets[wrong]}` })
  }

  /** Values `start` to `start + count` of a column. */
  async #read(batch: Batch, column: Column, start: number, count: number, field: string): Promise<unknown[]> {
    if (count === 0) return []
    if (count > maxValues) {
      throw new Mismatch({ where: this.path, field, expected: `at most ${maxValues} values in a row`, got: count })
    }
    if (column.dictionaryId !== null) return await this.#readDictionary(batch, column, start, count, field)
    const valid = await this.#validity(batch, column, start, count)
    const values = await this.#readStored(batch, column, start, count, field)
    return values.map((value, i) => (valid(i) ? (value instanceof Mismatch ? raise(value) : value) : null))
  }

  async #readStored(batch: Batch, column: Column, start: number, count: number, field: string): Promise<unknown[]> {
    switch (column.type.typeId) {
      case Type.Null:
        return new Array(count).fill(null)
      case Type.Struct:
        return await this.#readStruct(batch, column, start, count, field)
      case Type.List:
      case Type.LargeList:
      case Type.Map:
        return await this.#readLists(batch, column, await this.#offsets(batch, column, start, count, field), field)
      case Type.FixedSizeList: {
        const size = (column.type as unknown as { listSize: number }).listSize
        const offsets = Array.from({ length: count + 1 }, (_, i) => (start + i) * size)
        return await this.#readLists(batch, column, offsets, field)
      }
      case Type.Utf8:
      case Type.LargeUtf8:
      case Type.Binary:
      case Type.LargeBinary:
        return await this.#readBytes(batch, column, start, count, field)
      default:
        return await this.#readFixed(batch, column, start, count, field)
    }
  }

  async #readStruct(batch: Batch, column: Column, start: number, count: number, field: string): Promise<unknown[]> {
    const rows: Record<string, unknown>[] = Array.from({ length: count }, () => ({}))
    for (const child of column.children) {
      const values = await this.#read(batch, child, start, count, `${field}.${child.name}`)
      for (let i = 0; i < count; i++) rows[i]![child.name] = values[i]
    }
    return rows
  }

  async #readLists(batch: Batch, column: Column, offsets: number[], field: string): Promise<unknown[]> {
    const first = offsets[0]!
    const values = await this.#read(batch, column.children[0]!, first, offsets.at(-1)! - first, field)
    return offsets.slice(1).map((end, i) => values.slice(offsets[i]! - first, end - first))
  }

  async #readBytes(batch: Batch, column: Column, start: number, count: number, field: string): Promise<unknown[]> {
    const offsets = await this.#offsets(batch, column, start, count, field)
    const first = offsets[0]!
    const all = await this.#bytes(batch, column.buffer + 2, first, offsets.at(-1)! - first)
    const pieces = offsets.slice(1).map((end, i) => all.subarray(offsets[i]! - first, end - first))
    const text = column.type.typeId === Type.Utf8 || column.type.typeId === Type.LargeUtf8
    return text ? pieces.map((piece) => strictText(piece, this.path, field)) : pieces
  }

  async #readFixed(batch: Batch, column: Column, start: number, count: number, field: string): Promise<unknown[]> {
    const { type } = column
    if (type.typeId === Type.Bool) {
      const isSet = await this.#bits(batch, column.buffer + 1, start, count)
      return Array.from({ length: count }, (_, i) => isSet(i))
    }
    const [width, read] = fixedReader(type, this.path, field)
    const bytes = await this.#bytes(batch, column.buffer + 1, start * width, count * width)
    return Array.from({ length: count }, (_, i) => read(bytes, i * width))
  }

  async #readDictionary(batch: Batch, column: Column, start: number, count: number, field: string): Promise<unknown[]> {
    const indices = (column.type as unknown as { indices: DataType }).indices
    const keys = await this.#read(batch, { ...column, type: indices, dictionaryId: null }, start, count, field)
    const values = await this.#dictionary(column, field)
    return keys.map((key) => {
      if (key === null) return null
      if ((key as number) >= 0 && (key as number) < values.length) return values[key as number]
      const expected = `an index into a dictionary of ${values.length} values`
      throw new Mismatch({ where: this.path, field, expected, got: key })
    })
  }

  async #dictionary(column: Column, field: string): Promise<unknown[]> {
    const id = column.dictionaryId!
    const values = this.#dictionaries.get(id) ?? this.#readDictionaryValues(column, field)
    this.#dictionaries.set(id, values)
    return await values
  }

  async #readDictionaryValues(column: Column, field: string): Promise<unknown[]> {
    const type = (column.type as unknown as { dictionary: DataType }).dictionary
    const stored: Column = { name: column.name, type, node: 0, buffer: 0, children: [], dictionaryId: null }
    if (type.children?.length) {
      throw new Mismatch({ where: this.path, field, expected: 'a dictionary of plain values', got: String(type) })
    }
    let values: unknown[] = []
    for (const entry of this.#index.dictionaries) {
      const bytes = await this.#pool.read(this.path, entry.metaOffset, entry.metaLength)
      const header = this.#checks.dictionary(decodeMessage(bytes, this.path, entry.metaOffset), entry)
      if (header.id !== column.dictionaryId) continue
      const batch = placed(header.data, entry.bodyOffset)
      const part = await this.#read(batch, stored, 0, batch.rows, field)
      values = header.isDelta ? values.concat(part) : part
    }
    return values
  }
}

function placed({ length, nodes, buffers }: BatchHeader, bodyOffset: number): Batch {
  return {
    rows: length,
    lengths: nodes.map((node) => node.length),
    buffers: buffers.map((b) => ({ offset: bodyOffset + b.offset, length: b.length })),
  }
}

function raise(error: Mismatch): never {
  throw error
}

function fixedReader(type: DataType, where: string, field: string): [number, (b: Buffer, at: number) => unknown] {
  const t = type as unknown as { bitWidth?: number; isSigned?: boolean; precision?: number; byteWidth?: number }
  switch (type.typeId) {
    case Type.Int:
      return intReader(t.bitWidth!, t.isSigned!)
    case Type.Float:
      if (t.precision === 1) return [4, (b, at) => b.readFloatLE(at)]
      if (t.precision === 2) return [8, (b, at) => b.readDoubleLE(at)]
      break
    case Type.Timestamp:
    case Type.Duration:
      return intReader(64, true)
    case Type.FixedSizeBinary:
      return [t.byteWidth!, (b, at) => b.subarray(at, at + t.byteWidth!)]
  }
  throw new Mismatch({ where, field, expected: 'a column type of Hugging Face datasets', got: String(type) })
}

function intReader(bits: number, signed: boolean): [number, (b: Buffer, at: number) => number] {
  const bytes = bits / 8
  if (bits === 64) return [8, (b, at) => Number(signed ? b.readBigInt64LE(at) : b.readBigUInt64LE(at))]
  return [bytes, (b, at) => (signed ? b.readIntLE(at, bytes) : b.readUIntLE(at, bytes))]
}
