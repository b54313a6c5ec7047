// Protobuf wire format, as much as SentencePiece and ONNX files need. Every length is checked against the available bytes.
import { Mismatch } from './errors.ts'

export interface ProtoField {
  number: number
  /** Varints and fixed numbers; 0 for bytes. */
  value: number
  /** Bytes of a length-delimited field, of a fixed32 (4) or of a fixed64 (8); empty for a varint. */
  bytes: Uint8Array
  wire: 'varint' | 'fixed64' | 'bytes' | 'fixed32'
}

/** The fields of one message, in order; broken bytes are a Mismatch. */
export function* protoFields(message: Uint8Array, where: string): Generator<ProtoField> {
  const reader = new WireReader(message, where)
  while (!reader.done) yield reader.field()
}

class WireReader {
  readonly #bytes: Uint8Array
  readonly #where: string
  #at = 0

  constructor(bytes: Uint8Array, where: string) {
    this.#bytes = bytes
    this.#where = where
  }

  get done(): boolean {
    return this.#at >= this.#bytes.length
  }

  field(): ProtoField {
    const tag = this.#varint()
    const number = Math.floor(tag / 8)
    if (number < 1 || tag >= 2 ** 32) throw this.#broken('a field number', tag)
    const wire = tag % 8
    if (wire === 0) return { number, wire: 'varint', value: this.#varint(), bytes: nothing }
    if (wire === 1) return { number, wire: 'fixed64', value: 0, bytes: this.#take(8) }
    if (wire === 2) return { number, wire: 'bytes', value: 0, bytes: this.#take(this.#varint()) }
    if (wire === 5) return { number, wire: 'fixed32', value: 0, bytes: this.#take(4) }
    throw this.#broken('wire type 0, 1, 2 or 5', wire)
  }

  /** Up to 64 bits; above 2^53 the value is inexact, which no field that is read needs. */
  #varint(): number {
    let value = 0
    for (let i = 0, scale = 1; i < 10; i++, scale *= 128) {
      const byte = this.#bytes[this.#at]
      if (byte === undefined) throw this.#broken('a whole varint', 'the end of the message')
      this.#at++
      value += (byte & 0x7f) * scale
      if (byte < 0x80) return value
    }
    throw this.#broken('a varint of at most 10 bytes', 'a longer one')
  }

  #take(length: number): Uint8Array {
    const left = this.#bytes.length - this.#at
    if (length > left) throw this.#broken(`${length} bytes`, `${left} to the end of the message`)
    this.#at += length
    return this.#bytes.subarray(this.#at - length, this.#at)
  }

  #broken(expected: string, got: unknown): Mismatch {
    return new Mismatch({ where: this.#where, field: `byte ${this.#at}`, expected, got })
  }
}

const nothing = new Uint8Array(0)

export function protoFloat(field: ProtoField, where: string, name: string): number {
  requireWire(field, 'fixed32', where, name)
  const { buffer, byteOffset } = field.bytes
  return new DataView(buffer, byteOffset, 4).getFloat32(0, true)
}

/** int32 and enums: negative numbers are stored as 64 bits. */
export function protoInt(field: ProtoField, where: string, name: string): number {
  requireWire(field, 'varint', where, name)
  return field.value >= 2 ** 63 ? Number(BigInt.asIntN(32, BigInt(field.value))) : field.value
}

export function protoBool(field: ProtoField, where: string, name: string): boolean {
  requireWire(field, 'varint', where, name)
  return field.value !== 0
}

export function protoBytes(field: ProtoField, where: string, name: string): Uint8Array {
  requireWire(field, 'bytes', where, name)
  return field.bytes
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export function protoText(field: ProtoField, where: string, name: string): string {
  try {
    return strictUtf8.decode(protoBytes(field, where, name))
  } catch (error) {
    if (error instanceof Mismatch) throw error
    throw new Mismatch({ where, field: name, expected: 'UTF-8', got: 'other bytes' }, { cause: error })
  }
}

function requireWire(field: ProtoField, wire: ProtoField['wire'], where: string, name: string): void {
  if (field.wire === wire) return
  throw new Mismatch({ where, field: name, expected: `a ${wire} field`, got: field.wire })
}
