// TensorBoard event file, written by hand: TFRecord frames around protobuf `Event` messages that hold scalar summaries.
import { closeSync, fsyncSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Metrics } from './events.ts'
import { inWords } from './json-lines.ts'

const table = new Uint32Array(256).map((_, i) => {
  let c = i
  for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0x82f63b78 : c >>> 1
  return c
})

/** CRC-32C (Castagnoli, reflected). */
export function crc32c(bytes: Uint8Array): number {
  let c = 0xffffffff
  for (const byte of bytes) c = (c >>> 8) ^ table[(c ^ byte) & 255]!
  return (c ^ 0xffffffff) >>> 0
}

/** TFRecord stores checksums rotated and shifted, so that a checksum of data that holds checksums stays useful. */
function masked(bytes: Uint8Array): number {
  const c = crc32c(bytes)
  return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0
}

/** [u64 length][masked crc of it][data][masked crc of it], little-endian. */
export function frame(data: Uint8Array): Buffer {
  const out = Buffer.alloc(16 + data.length)
  out.writeBigUInt64LE(BigInt(data.length), 0)
  out.writeUInt32LE(masked(out.subarray(0, 8)), 8)
  out.set(data, 12)
  out.writeUInt32LE(masked(data), 12 + data.length)
  return out
}

function varint(value: number): Buffer {
  const bytes: number[] = []
  let rest = BigInt(value)
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128)
  bytes.push(Number(rest))
  return Buffer.from(bytes)
}

// Protobuf wire types: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
function fieldVarint(field: number, value: number): Buffer {
  return Buffer.concat([varint(field << 3), varint(value)])
}

function fieldBytes(field: number, value: Uint8Array | string): Buffer {
  const bytes = Buffer.from(value)
  return Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes])
}

function fieldDouble(field: number, value: number): Buffer {
  const out = Buffer.alloc(9)
  out[0] = (field << 3) | 1
  out.writeDoubleLE(value, 1)
  return out
}

function fieldFloat(field: number, value: number): Buffer {
  const out = Buffer.alloc(5)
  out[0] = (field << 3) | 5
  out.writeFloatLE(Math.fround(value), 1)
  return out
}

/** Event { wall_time = 1 (seconds), step = 2, body }. */
function event(seconds: number, step: number, body: Buffer): Buffer {
  return frame(Buffer.concat([fieldDouble(1, seconds), fieldVarint(2, step), body]))
}

/** Summary = 5 { repeated Value = 1 { tag = 1, simple_value = 2 } }. */
function summary(metrics: Metrics): Buffer {
  const values = Object.entries(metrics).map(([tag, value]) =>
    fieldBytes(1, Buffer.concat([fieldBytes(1, tag), fieldFloat(2, value)])),
  )
  return fieldBytes(5, Buffer.concat(values))
}

/**
 * One file per process start. A resumed run says so by a session-log START event (field 7, status 1), on which
 * TensorBoard forgets the points at that step and later.
 */
export class TensorboardWriter {
  readonly path: string
  #fd: number

  constructor(folder: string, { now = Date.now(), resumeAt }: { now?: number; resumeAt?: number } = {}) {
    mkdirSync(folder, { recursive: true })
    const seconds = String(Math.floor(now / 1000)).padStart(10, '0')
    this.path = join(folder, `events.out.tfevents.${seconds}.${hostname()}.${process.pid}.${now % 1000}`)
    this.#fd = openSync(this.path, 'a')
    this.#write(event(now / 1000, 0, fieldBytes(3, 'brain.Event:2')))
    if (resumeAt !== undefined) this.#write(event(now / 1000, resumeAt, fieldBytes(7, fieldVarint(1, 1))))
  }

  scalars(step: number, metrics: Metrics, now = Date.now()): void {
    this.#write(event(now / 1000, step, summary(metrics)))
  }

  sync(): void {
    fsyncSync(this.#fd)
  }

  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd)
    this.#fd = -1
  }

  // A reader stops at a torn frame and waits for the rest, so a kill in between loses that frame alone.
  #write(bytes: Buffer): void {
    try {
      for (let at = 0; at < bytes.length; ) at += writeSync(this.#fd, bytes, at)
    } catch (error) {
      throw inWords(error, this.path, bytes.length)
    }
  }
}
