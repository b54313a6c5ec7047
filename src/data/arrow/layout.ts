// Which nodes and buffers of a record batch belong to which column, and whether they are long enough for its rows.
import { type DataType, type Field, Type } from 'apache-arrow'
import { Mismatch } from '../../core/index.ts'
import { damagedHint } from '../files.ts'

/** A field with the place of its node and buffers in the batch's lists, pre-order over the schema tree. */
export interface Column {
  name: string
  type: DataType
  node: number
  buffer: number
  children: Column[]
  dictionaryId: number | null
}

export interface BufferPlace {
  /** Relative to the body of its message. */
  offset: number
  length: number
}

/** The metadata of a batch, untrusted until BatchChecker has checked them. */
export interface BatchHeader {
  length: number
  nodes: { length: number; nullCount: number }[]
  buffers: BufferPlace[]
  compression?: unknown
}

/** The columns of a schema, and how many nodes and buffers a batch of them has. */
export interface Layout {
  columns: Column[]
  nodes: number
  buffers: number
}

/** The type whose values are in the column's own buffers: the index type for dictionaries. */
function storedType({ type, dictionaryId }: Pick<Column, 'type' | 'dictionaryId'>): DataType {
  return dictionaryId === null ? type : (type as unknown as { indices: DataType }).indices
}

const unsupported: readonly Type[] = [Type.Union, Type.Utf8View, Type.BinaryView]
const longOffsets: readonly Type[] = [Type.LargeUtf8, Type.LargeBinary, Type.LargeList]
const shortOffsets: readonly Type[] = [Type.Utf8, Type.Binary, Type.List, Type.Map]
const textOrBytes: readonly Type[] = [Type.Utf8, Type.Binary, Type.LargeUtf8, Type.LargeBinary]

/** How many buffers a type has before its children's. */
function ownBuffers(type: DataType, where: string, name: string): number {
  const { typeId } = type
  if (unsupported.includes(typeId))
    throw new Mismatch({ where, field: name, expected: 'a column type of Hugging Face datasets', got: String(type) })
  if (typeId === Type.Null) return 0
  if (typeId === Type.Struct || typeId === Type.FixedSizeList) return 1
  return textOrBytes.includes(typeId) ? 3 : 2 // validity; data or offsets; bytes of texts
}

interface Sizes {
  bitWidth?: number
  byteWidth?: number
  listSize?: number
}

/** Bits of one value of a type of fixed width; null for the others. */
function bitsOf(type: DataType): number | null {
  const { bitWidth, byteWidth } = type as unknown as Sizes
  switch (type.typeId) {
    case Type.Bool:
      return 1
    case Type.Int:
    case Type.Decimal:
    case Type.Time:
      return bitWidth!
    case Type.Float:
      return 16 << (type as unknown as { precision: number }).precision
    case Type.Timestamp:
    case Type.Duration:
      return 64
    case Type.FixedSizeBinary:
      return 8 * byteWidth!
    default:
      return null
  }
}

function checkType(type: DataType, where: string, field: string): void {
  const { bitWidth, byteWidth, listSize } = type as unknown as Sizes
  const whole = (n: number | undefined) => Number.isInteger(n) && n! >= 0 && n! <= 2 ** 31
  const wrong =
    (type.typeId === Type.Int && ![8, 16, 32, 64].includes(bitWidth!) && `whole numbers of ${bitWidth} bits`) ||
    (type.typeId === Type.FixedSizeBinary && !whole(byteWidth) && `values of ${byteWidth} bytes`) ||
    (type.typeId === Type.FixedSizeList && !whole(listSize) && `lists of ${listSize} values`)
  if (wrong) throw new Mismatch({ where, field, expected: 'a column type of Hugging Face datasets', got: wrong })
}

const lists: readonly Type[] = [Type.List, Type.LargeList, Type.FixedSizeList, Type.Map]

/** Columns of a schema with the positions of their nodes and buffers. Rejects types that cannot be read. */
export function layout(fields: readonly Field[], where: string): Layout {
  let node = 0
  let buffer = 0
  const place = (field: Field | null | undefined, path: string): Column => {
    if (!field) throw new Mismatch({ where, field: path, expected: 'a column with a name and a type', got: 'none' })
    const type = field.type as DataType
    const dictionaryId = type.typeId === Type.Dictionary ? (type as unknown as { id: number }).id : null
    const column: Column = { name: field.name, type, node: node++, buffer, children: [], dictionaryId }
    const stored = storedType(column)
    checkType(stored, where, path)
    buffer += ownBuffers(stored, where, path)
    const children = dictionaryId === null ? ((type.children ?? []) as (Field | null)[]) : []
    column.children = children.map((child) => place(child, `${path}.${child?.name}`))
    if (lists.includes(stored.typeId) && column.children.length !== 1)
      throw new Mismatch({ where, field: path, expected: 'a list of one type', got: `${column.children.length}` })
    return column
  }
  const columns = fields.map((field) => place(field, String(field?.name)))
  return { columns, nodes: node, buffers: buffer }
}

/** The layout of a dictionary's values, which are a batch of one column. */
export function dictionaryLayout(type: DataType, where: string): Layout {
  return layout([{ name: 'dictionary', type } as unknown as Field], where)
}

/** Checks the counts, lengths and offsets of one batch against each other and against its body. */
export class BatchChecker {
  readonly #header: BatchHeader
  readonly #bodyLength: number
  readonly #site: { where: string; field: string }

  constructor(header: BatchHeader, bodyLength: number, where: string, at: number) {
    this.#header = header
    this.#bodyLength = bodyLength
    this.#site = { where, field: `record batch at byte ${at}` }
  }

  check(expected: Layout): void {
    const { length, nodes, buffers } = this.#header
    if (!isCount(length) || length > 8 * this.#bodyLength)
      this.#fail(`rows that its ${this.#bodyLength} bytes can hold`, `${length} rows`)
    if (nodes.length !== expected.nodes || buffers.length !== expected.buffers) {
      const got = `${nodes.length} nodes and ${buffers.length} buffers`
      this.#fail(`${expected.nodes} nodes and ${expected.buffers} buffers, as the schema has`, got)
    }
    for (const [i, { offset, length: bytes }] of buffers.entries()) {
      if (!isCount(offset) || !isCount(bytes) || offset + bytes > this.#bodyLength)
        this.#fail(`buffer ${i} inside the body of ${this.#bodyLength} bytes`, `${bytes} bytes at ${offset}`)
    }
    for (const column of expected.columns) this.#column(column, column.name, length, true)
  }

  /** `least`: rows of the parent that this column must serve. */
  #column(column: Column, path: string, least: number, exact: boolean): void {
    const { length, nullCount } = this.#header.nodes[column.node]!
    const fits = isCount(length) && length <= 8 * this.#bodyLength && nullCount <= length
    if (!fits || (exact ? length !== least : length < least))
      this.#fail(`${least} values of ${path}`, `${length}, of which ${nullCount} are null`)
    const type = storedType(column)
    if (type.typeId !== Type.Null) this.#validity(column, path, length)
    this.#values(column, type, path, length)
    for (const child of column.children) this.#column(child, `${path}.${child.name}`, childRows(type, length), false)
  }

  #validity(column: Column, path: string, length: number): void {
    const bytes = this.#header.buffers[column.buffer]!.length
    if (bytes > 0 && bytes < Math.ceil(length / 8))
      this.#fail(`validity of ${length} values of ${path}`, `${bytes} bytes`)
  }

  #values(column: Column, type: DataType, path: string, length: number): void {
    const bits = offsetBits(type)
    const needed =
      bits > 0 ? (length === 0 ? 0 : ((length + 1) * bits) / 8) : Math.ceil(((bitsOf(type) ?? 0) * length) / 8)
    if (needed === 0) return
    const bytes = this.#header.buffers[column.buffer + 1]!.length
    if (bytes < needed) this.#fail(`${needed} bytes for ${length} values of ${path}`, `${bytes} bytes`)
  }

  #fail(expected: string, got: string): never {
    throw new Mismatch({ ...this.#site, expected, got, hint: damagedHint })
  }
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** Width of the offsets of texts and lists; 0 for types without offsets. */
export function offsetBits({ typeId }: DataType): number {
  if (longOffsets.includes(typeId)) return 64
  return shortOffsets.includes(typeId) ? 32 : 0
}

/** Values that a child must have; those of a list are known from its offsets only, when a row is read. */
function childRows(type: DataType, length: number): number {
  if (type.typeId === Type.Struct) return length
  return type.typeId === Type.FixedSizeList ? length * (type as unknown as { listSize: number }).listSize : 0
}
