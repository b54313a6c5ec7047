// The little of protobuf's wire format that event files need. Wire types: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.

export function varint(value: number | bigint): Buffer {
  const bytes: number[] = []
  let rest = BigInt.asUintN(64, BigInt(value))
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128)
  bytes.push(Number(rest))
  return Buffer.from(bytes)
}

export function fieldVarint(field: number, value: number): Buffer {
  return Buffer.concat([varint(field << 3), varint(value)])
}

export function fieldBytes(field: number, value: Uint8Array | string): Buffer {
  const bytes = Buffer.from(value)
  return Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes])
}

/** A message inside a message. */
export function fieldMessage(field: number, ...parts: readonly Uint8Array[]): Buffer {
  return fieldBytes(field, Buffer.concat(parts))
}

export function fieldDouble(field: number, value: number): Buffer {
  const out = Buffer.alloc(9)
  out[0] = (field << 3) | 1
  out.writeDoubleLE(value, 1)
  return out
}

export function fieldFloat(field: number, value: number): Buffer {
  const out = Buffer.alloc(5)
  out[0] = (field << 3) | 5
  out.writeFloatLE(Math.fround(value), 1)
  return out
}
