// Mutations of protobuf messages that stay protobuf: fields with other lengths, numbers, types and order, at any depth.
import type { RandomStream } from '../../src/core/index.ts'
import { damageBytes, edgeNumber } from './bytes.ts'

interface Field {
  number: number
  wire: number
  /** Of a varint. */
  value: bigint
  bytes: Buffer
}

function readVarint(bytes: Buffer, at: number): [bigint, number] {
  let value = 0n
  for (let shift = 0n; ; shift += 7n) {
    const byte = bytes[at++]!
    value |= BigInt(byte & 0x7f) << shift
    if (byte < 0x80) return [value, at]
  }
}

function varint(value: bigint): Buffer {
  const out: number[] = []
  let rest = BigInt.asUintN(64, value)
  do {
    out.push(Number(rest & 0x7fn) | (rest > 0x7fn ? 0x80 : 0))
    rest >>= 7n
  } while (rest > 0n)
  return Buffer.from(out)
}

/** Of a whole message; the seeds are ours. */
function fieldsOf(bytes: Buffer): Field[] {
  const found: Field[] = []
  for (let at = 0; at < bytes.length; ) {
    const [tag, after] = readVarint(bytes, at)
    const [number, wire] = [Number(tag >> 3n), Number(tag & 7n)]
    const [value, start] = wire === 0 || wire === 2 ? readVarint(bytes, after) : [0n, after]
    const length = wire === 2 ? Number(value) : wire === 5 ? 4 : wire === 1 ? 8 : 0
    found.push({ number, wire, value, bytes: bytes.subarray(start, start + length) })
    at = start + length
  }
  return found
}

function messageOf(fields: readonly Field[], lie?: { at: number; length: number }): Buffer {
  const parts = fields.map(({ number, wire, value, bytes }, i) => {
    const tag = varint(BigInt(number * 8 + wire))
    if (wire === 0) return Buffer.concat([tag, varint(value)])
    if (wire !== 2) return Buffer.concat([tag, bytes])
    const length = lie?.at === i ? lie.length : bytes.length
    return Buffer.concat([tag, varint(BigInt(Math.trunc(length))), bytes])
  })
  return Buffer.concat(parts)
}

/** One change; `nested` says whether a field of bytes may itself be a message. */
export function damageMessage(
  message: Buffer,
  random: RandomStream,
  nested: (field: number) => boolean,
): { bytes: Buffer; note: string } {
  const fields = fieldsOf(message)
  const at = random.below(fields.length)
  const field = fields[at]!
  const name = `field ${field.number} (${at} of ${fields.length})`
  if (field.wire === 2 && nested(field.number) && random.below(2) === 0) {
    const inner = damageMessage(field.bytes, random, () => false)
    fields[at] = { ...field, bytes: inner.bytes }
    return { bytes: messageOf(fields), note: `${name}: ${inner.note}` }
  }
  switch (random.below(8)) {
    case 0:
      fields.splice(at, 1)
      return { bytes: messageOf(fields), note: `without ${name}` }
    case 1:
      fields.splice(at, 0, ...Array.from({ length: 10 ** random.below(4) }, () => field))
      return { bytes: messageOf(fields), note: `${name} many times` }
    case 2: {
      const length = edgeNumber(random, field.bytes.length)
      return { bytes: messageOf(fields, { at, length }), note: `${name}: length ${length}` }
    }
    case 3:
      fields[at] = { ...field, value: BigInt(Math.trunc(edgeNumber(random, Number(field.value)))) }
      return { bytes: messageOf(fields), note: `${name} = ${fields[at]!.value}` }
    case 4:
      fields[at] = { ...field, wire: random.below(8) }
      return { bytes: messageOf(fields), note: `${name}: wire type ${fields[at]!.wire}` }
    case 5:
      fields[at] = { ...field, number: random.pick([0, 1, 2, 3, 7, 2 ** 20, 2 ** 28]) }
      return { bytes: messageOf(fields), note: `${name}: number ${fields[at]!.number}` }
    case 6:
      fields[at] = {
        ...field,
        bytes: Buffer.from(random.pick(['', '\u2581', 'x'.repeat(100_000), '\ufffd', '\u0000'])),
      }
      return { bytes: messageOf(fields), note: `${name}: another text` }
    default: {
      const { bytes, note } = damageBytes(message, random)
      return { bytes, note }
    }
  }
}
