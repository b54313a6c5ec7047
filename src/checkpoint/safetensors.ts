import { Mismatch, replaceFile, writeAll } from '../core/index.ts'
import { byteLengthOf, checkName, type DType, dtypes } from './dtype.ts'
import { readFileRange, readRange, refuseFailedDownloadAt, withFile } from './file-ranges.ts'
import { parseHeader } from './safetensors-header.ts'

/** One tensor of a file. `begin` and `end` are absolute byte offsets in the file. */
export interface TensorRange {
  dtype: DType
  shape: readonly number[]
  begin: number
  end: number
}

export interface SafetensorsHeader {
  /** In the order of their bytes in the file. */
  tensors: ReadonlyMap<string, TensorRange>
  metadata: Readonly<Record<string, string>>
  /** Where the tensors' bytes begin. */
  dataOffset: number
  fileSize: number
}

export interface TensorData {
  dtype: DType
  shape: readonly number[]
  data: Uint8Array
}

/** A tensor to write; a function is called once, when its turn comes, so that one tensor at a time is in memory. */
export interface TensorSource {
  name: string
  dtype: DType
  shape: readonly number[]
  data: Uint8Array | (() => Uint8Array)
}

/** Reads and checks the header; no tensor is loaded, and every range is known to lie inside the file. */
export function readHeader(path: string): SafetensorsHeader {
  return withFile(path, (fd, size) => headerOf(fd, path, size))
}

const maxHeader = 100_000_000

function headerOf(fd: number, path: string, fileSize: number): SafetensorsHeader {
  refuseFailedDownloadAt(fd, path, fileSize, 'a safetensors file')
  if (fileSize < 8) throw new Mismatch({ where: path, expected: 'a safetensors file', got: `${fileSize} bytes` })
  const length = Buffer.from(readRange(fd, path, 0, 8)).readBigUInt64LE()
  const most = Math.min(maxHeader, fileSize - 8)
  if (length > BigInt(most)) {
    const hint = 'not a safetensors file, or a cut one'
    throw new Mismatch({ where: path, field: 'header length', expected: `at most ${most}`, got: length, hint })
  }
  const bytes = readRange(fd, path, 8, Number(length))
  return parseHeader(path, bytes, fileSize)
}

/** The row-major little-endian bytes of one tensor. */
export function readTensorBytes(path: string, { begin, end }: { begin: number; end: number }): Uint8Array {
  return readFileRange(path, begin, end - begin)
}

/** Every tensor of a small file, in memory. */
export function readAll(path: string): Map<string, TensorData> {
  return withFile(path, (fd, size) => {
    const out = new Map<string, TensorData>()
    for (const [name, { dtype, shape, begin, end }] of headerOf(fd, path, size).tensors) {
      out.set(name, { dtype, shape, data: readRange(fd, path, begin, end - begin) })
    }
    return out
  })
}

/** Same tensors and metadata give the same bytes, whatever their order. */
export function writeSafetensors(
  path: string,
  entries: Iterable<TensorSource>,
  metadata: Readonly<Record<string, string>> = { format: 'pt' },
): void {
  const sorted = layout(path, entries)
  const header = headerBytes(sorted, metadata)
  replaceFile(path, (fd) => {
    writeAll(fd, header)
    for (const { source, byteLength } of sorted) {
      const data = typeof source.data === 'function' ? source.data() : source.data
      if (data.byteLength !== byteLength) {
        const got = `${data.byteLength} bytes`
        throw new Mismatch({ where: path, field: source.name, expected: `${byteLength} bytes`, got })
      }
      writeAll(fd, data)
    }
  })
}

interface Placed {
  source: TensorSource
  byteLength: number
}

/** Falling element type, then rising name by its UTF-8 bytes: the order the reference serialiser writes. */
function layout(path: string, entries: Iterable<TensorSource>): Placed[] {
  const seen = new Set<string>()
  const placed: (Placed & { key: Buffer })[] = []
  for (const source of entries) {
    checkName(path, source.name)
    if (seen.has(source.name) || source.name === '__metadata__') {
      throw new Mismatch({ where: path, field: source.name, expected: 'each name once', got: 'a second tensor of it' })
    }
    seen.add(source.name)
    placed.push({ source, byteLength: sourceBytes(path, source), key: Buffer.from(source.name) })
  }
  const rank = (p: Placed) => dtypes.indexOf(p.source.dtype)
  return placed.sort((a, b) => rank(b) - rank(a) || Buffer.compare(a.key, b.key))
}

/** Bytes of a tensor to write; a dtype or shape the format cannot hold is refused. */
export function sourceBytes(where: string, source: { name: string; dtype: DType; shape: readonly number[] }): number {
  const bytes = dtypes.includes(source.dtype) ? byteLengthOf(source.dtype, source.shape) : null
  if (bytes !== null) return bytes
  const got = { dtype: source.dtype, shape: source.shape }
  throw new Mismatch({ where, field: source.name, expected: 'a known dtype and sizes of 0 or more', got })
}

function headerBytes(sorted: readonly Placed[], metadata: Readonly<Record<string, string>>): Uint8Array {
  const fields: string[] = []
  const keys = Object.keys(metadata).sort()
  if (keys.length > 0) {
    const pairs = keys.map((key) => `${JSON.stringify(key)}:${JSON.stringify(metadata[key])}`)
    fields.push(`"__metadata__":{${pairs.join(',')}}`)
  }
  let at = 0
  for (const { source, byteLength } of sorted) {
    const { name, dtype, shape } = source
    fields.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [at, at + byteLength] })}`)
    at += byteLength
  }
  const text = Buffer.from(`{${fields.join(',')}}`)
  const length = Math.ceil(text.length / 8) * 8
  const out = Buffer.alloc(8 + length, ' ')
  out.writeBigUInt64LE(BigInt(length))
  text.copy(out, 8)
  return out
}
