import { isUtf8 } from 'node:buffer'
import { expecting, isObject, Mismatch, typeOf } from '../core/index.ts'
import { byteLengthOf, checkName, dtypes, isDType, showShape } from './dtype.ts'
import type { SafetensorsHeader, TensorRange } from './safetensors.ts'

/** The header's JSON, checked: every tensor's range lies in the file, and the ranges cover the data exactly once. */
export function parseHeader(where: string, bytes: Uint8Array, fileSize: number): SafetensorsHeader {
  const json = parseObject(where, bytes)
  const dataOffset = 8 + bytes.length
  const ranges: [string, TensorRange][] = []
  for (const [name, value] of Object.entries(json)) {
    if (name === '__metadata__') continue
    checkName(where, name)
    ranges.push([name, rangeOf(where, name, value, dataOffset, fileSize)])
  }
  ranges.sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end)
  checkCover(where, ranges, dataOffset, fileSize)
  return { tensors: new Map(ranges), metadata: metadataOf(where, json), dataOffset, fileSize }
}

function parseObject(where: string, bytes: Uint8Array): Record<string, unknown> {
  const field = 'header'
  if (bytes[0] !== 0x7b) {
    throw new Mismatch({ where, field, expected: 'JSON that begins with {', got: bytes[0] ?? 'nothing' })
  }
  if (!isUtf8(bytes)) throw new Mismatch({ where, field, expected: 'UTF-8', got: 'other bytes' })
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8')
  const json: unknown = expecting({ where, field, expected: 'JSON' }, () => JSON.parse(text))
  if (!isObject(json)) throw new Mismatch({ where, field, expected: 'a JSON object', got: typeOf(json) })
  const twice = duplicateKey(text)
  if (twice !== null) throw new Mismatch({ where, field, expected: 'each key once', got: `${twice} twice` })
  return json
}

/** The first key that an object of this (valid) JSON text holds twice; JSON.parse would keep the last in silence. */
export function duplicateKey(text: string): string | null {
  const open: (Set<string> | null)[] = []
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (c === '{') open.push(new Set())
    else if (c === '[') open.push(null)
    else if (c === '}' || c === ']') open.pop()
    else if (c === '"') {
      const end = endOfString(text, i)
      const key = keyAt(text, i, end)
      i = end
      if (key === null) continue
      const keys = open.at(-1)
      if (keys?.has(key)) return key
      keys?.add(key)
    }
  }
  return null
}

function endOfString(text: string, begin: number): number {
  let i = begin + 1
  while (text[i] !== '"') i += text[i] === '\\' ? 2 : 1
  return i
}

/** The decoded string when a colon follows it, else null (a value). */
function keyAt(text: string, begin: number, end: number): string | null {
  let after = end + 1
  while (after < text.length && ' \t\n\r'.includes(text[after]!)) after++
  return text[after] === ':' ? (JSON.parse(text.slice(begin, end + 1)) as string) : null
}

function rangeOf(where: string, name: string, value: unknown, dataOffset: number, fileSize: number): TensorRange {
  if (!isObject(value)) throw new Mismatch({ where, field: name, expected: 'an object', got: typeOf(value) })
  const { dtype, shape, data_offsets: offsets } = value
  if (!isDType(dtype)) {
    throw new Mismatch({ where, field: `${name}.dtype`, expected: `one of ${dtypes.join(' ')}`, got: dtype })
  }
  if (!Array.isArray(shape) || byteLengthOf(dtype, shape) === null) {
    throw new Mismatch({ where, field: `${name}.shape`, expected: 'a list of sizes below 2^53 bytes', got: shape })
  }
  const [from, to] = offsetsOf(where, name, offsets, fileSize - dataOffset)
  const bytes = byteLengthOf(dtype, shape)
  if (to - from !== bytes) {
    const expected = `${bytes} bytes for ${dtype} ${showShape(shape)}`
    throw new Mismatch({ where, field: `${name}.data_offsets`, expected, got: `${to - from} bytes` })
  }
  return { dtype, shape, begin: dataOffset + from, end: dataOffset + to }
}

function offsetsOf(where: string, name: string, offsets: unknown, dataSize: number): [number, number] {
  const field = `${name}.data_offsets`
  const isOffset = (v: unknown) => Number.isSafeInteger(v) && (v as number) >= 0
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isOffset) || offsets[0] > offsets[1]) {
    throw new Mismatch({ where, field, expected: '[begin, end] with 0 <= begin <= end', got: offsets })
  }
  if (offsets[1] > dataSize) {
    const expected = `inside the file's ${dataSize} data bytes`
    throw new Mismatch({ where, field, expected, got: `end ${offsets[1]}`, hint: 'the file is cut' })
  }
  return [offsets[0], offsets[1]]
}

/** The format allows neither holes nor overlaps: hidden bytes could hold anything. */
function checkCover(where: string, sorted: readonly [string, TensorRange][], dataOffset: number, fileSize: number) {
  let at = dataOffset
  for (const [name, { begin, end }] of sorted) {
    if (begin !== at) {
      const what = begin < at ? 'it overlaps the tensor before it' : 'a gap is before it'
      const expected = `a begin of ${at - dataOffset}`
      throw new Mismatch({ where, field: name, expected, got: begin - dataOffset, hint: what })
    }
    at = end
  }
  if (at === fileSize) return
  throw new Mismatch({ where, field: 'size', expected: `${at} bytes as the header says`, got: `${fileSize} bytes` })
}

function metadataOf(where: string, json: Record<string, unknown>): Record<string, string> {
  const metadata = json['__metadata__'] ?? {}
  const field = '__metadata__'
  if (!isObject(metadata)) throw new Mismatch({ where, field, expected: 'an object', got: typeOf(metadata) })
  for (const [key, value] of Object.entries(metadata)) {
    if (typeof value !== 'string') {
      throw new Mismatch({ where, field: `${field}.${key}`, expected: 'a string', got: typeOf(value) })
    }
  }
  return metadata as Record<string, string>
}
