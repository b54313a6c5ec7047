import { Mismatch } from '../core/index.ts'
import { readRange, withFile } from './file-ranges.ts'

// A reader for zip files whose entries are stored, not compressed: PyTorch writes such, and a stored entry can be mapped.

/** One stored entry: its bytes are [offset, offset + size) of the file. */
export interface ZipEntry {
  offset: number
  size: number
  crc32: number
}

interface Directory {
  offset: number
  size: number
  count: number
}

const endSignature = 0x06054b50
const end64Signature = 0x06064b50
const locatorSignature = 0x07064b50
const entrySignature = 0x02014b50
const localSignature = 0x04034b50
const maxDirectory = 512 * 1024 * 1024

/** Name -> stored entry, in the directory's order. */
export function readZip(path: string): Map<string, ZipEntry> {
  return withFile(path, (fd, size) => {
    const directory = findDirectory(fd, path, size)
    const bytes = Buffer.from(readRange(fd, path, directory.offset, directory.size).buffer)
    const entries = new Map<string, ZipEntry>()
    let at = 0
    for (let i = 0; i < directory.count; i++) {
      const { name, entry, next } = readEntry(fd, path, size, bytes, at)
      if (entries.has(name)) throw new Mismatch({ where: path, field: name, expected: 'each entry once', got: 'two' })
      entries.set(name, entry)
      at = next
    }
    return entries
  })
}

function bad(where: string, field: string, expected: string, got: unknown): Mismatch {
  return new Mismatch({ where, field, expected, got, hint: 'not a zip file, or a cut or damaged one' })
}

function findDirectory(fd: number, path: string, size: number): Directory {
  const length = Math.min(size, 22 + 0xffff)
  const tail = Buffer.from(readRange(fd, path, size - length, length).buffer)
  let at = length - 22
  while (at >= 0 && !(tail.readUInt32LE(at) === endSignature && at + 22 + tail.readUInt16LE(at + 20) === length)) at--
  if (at < 0) throw bad(path, 'end of central directory', 'a record at the end of the file', 'none')
  const plain: Directory = {
    count: tail.readUInt16LE(at + 10),
    size: tail.readUInt32LE(at + 12),
    offset: tail.readUInt32LE(at + 16),
  }
  const needs64 = plain.count === 0xffff || plain.size === 0xffffffff || plain.offset === 0xffffffff
  const hasLocator = at >= 20 && tail.readUInt32LE(at - 20) === locatorSignature
  const end = size - length + at
  const directory = hasLocator || needs64 ? findDirectory64(fd, path, end) : plain
  if (directory.offset + directory.size > end || directory.size > maxDirectory) {
    throw bad(path, 'central directory', 'a range before the end record', directory)
  }
  return directory
}

function findDirectory64(fd: number, path: string, end: number): Directory {
  if (end < 76) throw bad(path, 'zip64 locator', 'room before the end record', end)
  const locator = Buffer.from(readRange(fd, path, end - 20, 20).buffer)
  const at = locator.readUInt32LE(0) === locatorSignature ? locator.readBigUInt64LE(8) : -1n
  if (at < 0n || at > BigInt(end - 76)) throw bad(path, 'zip64 locator', 'an offset inside the file', at)
  const record = Buffer.from(readRange(fd, path, Number(at), 56).buffer)
  if (record.readUInt32LE(0) !== end64Signature) throw bad(path, 'zip64 end record', 'its signature', 'other bytes')
  return {
    count: toNumber(path, 'zip64 count', record.readBigUInt64LE(32)),
    size: toNumber(path, 'zip64 size', record.readBigUInt64LE(40)),
    offset: toNumber(path, 'zip64 offset', record.readBigUInt64LE(48)),
  }
}

function toNumber(path: string, field: string, value: bigint): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw bad(path, field, 'below 2^53', value)
  return Number(value)
}

function readEntry(fd: number, path: string, fileSize: number, directory: Buffer, at: number) {
  if (at + 46 > directory.length || directory.readUInt32LE(at) !== entrySignature) {
    throw bad(path, 'central directory', `an entry at ${at}`, 'other bytes')
  }
  const nameLength = directory.readUInt16LE(at + 28)
  const extraLength = directory.readUInt16LE(at + 30)
  const next = at + 46 + nameLength + extraLength + directory.readUInt16LE(at + 32)
  if (next > directory.length) throw bad(path, 'central directory', 'an entry that fits', `${next} bytes`)
  const rawName = directory.subarray(at + 46, at + 46 + nameLength)
  const name = rawName.toString('utf8')
  checkStored(path, name, directory, at)
  const extra = directory.subarray(at + 46 + nameLength, at + 46 + nameLength + extraLength)
  const { size, local } = sizesOf(path, name, directory, at, extra)
  const offset = dataOffset(fd, path, fileSize, rawName, local)
  if (offset + size > fileSize) throw bad(path, name, `${size} bytes at ${offset}`, `a file of ${fileSize}`)
  return { name, entry: { offset, size, crc32: directory.readUInt32LE(at + 16) }, next }
}

function checkStored(path: string, name: string, directory: Buffer, at: number): void {
  const flags = directory.readUInt16LE(at + 8)
  const method = directory.readUInt16LE(at + 10)
  if (flags & 1) throw new Mismatch({ where: path, field: name, expected: 'an open entry', got: 'an encrypted one' })
  if (method === 0) return
  const hint = 'PyTorch stores without compression; unpack the file and save it again'
  const got = `compression method ${method}`
  throw new Mismatch({ where: path, field: name, expected: 'a stored entry', got, hint })
}

/** Size and local header offset, from the zip64 extra field where the 32-bit fields are full. */
function sizesOf(path: string, name: string, directory: Buffer, at: number, extra: Buffer) {
  let packed = directory.readUInt32LE(at + 20)
  let size = directory.readUInt32LE(at + 24)
  let local = directory.readUInt32LE(at + 42)
  const wide = zip64Values(extra)
  const take = () => {
    const value = wide.shift()
    if (value === undefined) throw bad(path, name, 'a zip64 extra field', 'none')
    return toNumber(path, name, value)
  }
  if (size === 0xffffffff) size = take()
  if (packed === 0xffffffff) packed = take()
  if (local === 0xffffffff) local = take()
  if (packed !== size) throw bad(path, name, `${size} stored bytes`, packed)
  return { size, local }
}

function zip64Values(extra: Buffer): bigint[] {
  for (let at = 0; at + 4 <= extra.length; at += 4 + extra.readUInt16LE(at + 2)) {
    if (extra.readUInt16LE(at) !== 1) continue
    const end = Math.min(extra.length, at + 4 + extra.readUInt16LE(at + 2))
    const values: bigint[] = []
    for (let v = at + 4; v + 8 <= end; v += 8) values.push(extra.readBigUInt64LE(v))
    return values
  }
  return []
}

/** The local header repeats the name and has its own extra field (PyTorch pads it so that data begins aligned). */
function dataOffset(fd: number, path: string, fileSize: number, rawName: Buffer, local: number): number {
  const name = rawName.toString('utf8')
  const length = 30 + rawName.length
  if (local + length > fileSize) throw bad(path, name, 'a local header inside the file', local)
  const header = Buffer.from(readRange(fd, path, local, length).buffer)
  if (header.readUInt32LE(0) !== localSignature || !header.subarray(30).equals(rawName)) {
    throw bad(path, name, 'a local header of the same name', 'other bytes')
  }
  if (header.readUInt16LE(26) !== rawName.length || header.readUInt16LE(8) !== 0) {
    throw bad(path, name, 'a local header that agrees with the directory', 'another one')
  }
  return local + length + header.readUInt16LE(28)
}
