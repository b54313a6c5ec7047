// Thrift's compact protocol as a tree and back: enough to change one count of a Parquet footer and leave the rest whole.
export interface Field {
  id: number
  type: number
  value: Value
}
export interface List {
  type: number
  items: Value[]
}
/** Whole numbers are bigints, structs lists of fields. */
export type Value = bigint | boolean | number | Buffer | List | Field[]

class Reader {
  at: number
  readonly bytes: Buffer
  constructor(bytes: Buffer, at: number) {
    this.bytes = bytes
    this.at = at
  }

  varint(): bigint {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.bytes[this.at++]!
      value |= BigInt(byte & 0x7f) << shift
      if (!(byte & 0x80)) return value
    }
  }

  zigzag(): bigint {
    const n = this.varint()
    return (n >> 1n) ^ -(n & 1n)
  }

  value(type: number, inList = false): Value {
    if (type === 1 || type === 2) return inList ? this.bytes[this.at++] === 1 : type === 1
    if (type === 3) return this.bytes.readInt8(this.at++)
    if (type >= 4 && type <= 6) return this.zigzag()
    if (type === 7) {
      this.at += 8
      return this.bytes.readDoubleLE(this.at - 8)
    }
    if (type === 8) {
      const length = Number(this.varint())
      this.at += length
      return this.bytes.subarray(this.at - length, this.at)
    }
    if (type === 9) return this.list()
    return this.struct()
  }

  list(): List {
    const head = this.bytes[this.at++]!
    const count = head >> 4 === 15 ? Number(this.varint()) : head >> 4
    const type = head & 15
    return { type, items: Array.from({ length: count }, () => this.value(type, true)) }
  }

  struct(): Field[] {
    const fields: Field[] = []
    for (let id = 0; ; ) {
      const head = this.bytes[this.at++]!
      if ((head & 15) === 0) return fields
      id = head >> 4 === 0 ? Number(this.zigzag()) : id + (head >> 4)
      fields.push({ id, type: head & 15, value: this.value(head & 15) })
    }
  }
}

/** The struct at a place, and where it ends. */
export function readStruct(bytes: Buffer, at: number): { fields: Field[]; end: number } {
  const reader = new Reader(bytes, at)
  const fields = reader.struct()
  return { fields, end: reader.at }
}

function varint(value: bigint): number[] {
  const out: number[] = []
  let left = BigInt.asUintN(64, value)
  for (; left > 0x7fn; left >>= 7n) out.push(Number(left & 0x7fn) | 0x80)
  return [...out, Number(left)]
}

function zigzag(value: bigint): number[] {
  return varint((value << 1n) ^ (value >> 63n))
}

function bytesOf(type: number, value: Value, inList = false): Buffer {
  if (type === 1 || type === 2) return Buffer.from(inList ? [value ? 1 : 2] : [])
  if (type === 3) return Buffer.from([Number(value) & 255])
  if (type >= 4 && type <= 6) return Buffer.from(zigzag(value as bigint))
  if (type === 7) {
    const out = Buffer.alloc(8)
    out.writeDoubleLE(value as number)
    return out
  }
  if (type === 8) return Buffer.concat([Buffer.from(varint(BigInt((value as Buffer).length))), value as Buffer])
  if (type !== 9) return writeStruct(value as Field[])
  const { type: inner, items } = value as List
  const head = items.length < 15 ? [(items.length << 4) | inner] : [0xf0 | inner, ...varint(BigInt(items.length))]
  return Buffer.concat([Buffer.from(head), ...items.map((item) => bytesOf(inner, item, true))])
}

export function writeStruct(fields: readonly Field[]): Buffer {
  const parts: Buffer[] = []
  let last = 0
  for (const { id, type, value } of fields) {
    const kind = type === 1 || type === 2 ? (value ? 1 : 2) : type
    const step = id - last
    parts.push(Buffer.from(step > 0 && step < 16 ? [(step << 4) | kind] : [kind, ...zigzag(BigInt(id))]))
    parts.push(bytesOf(type, value))
    last = id
  }
  return Buffer.concat([...parts, Buffer.from([0])])
}

/** Every field of a tree with the path of ids that leads to it. */
export function* fieldsOf(
  fields: readonly Field[],
  path: readonly number[] = [],
): Generator<{ field: Field; path: number[] }> {
  for (const field of fields) {
    const here = [...path, field.id]
    yield { field, path: here }
    if (field.type === 12) yield* fieldsOf(field.value as Field[], here)
    if (field.type === 9) {
      const { type, items } = field.value as List
      if (type === 12) for (const item of items) yield* fieldsOf(item as Field[], here)
    }
  }
}
