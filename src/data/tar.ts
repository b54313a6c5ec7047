import { statSync } from 'node:fs'
import { Mismatch } from '../core/index.ts'
import type { FilePool } from './files.ts'

export interface TarMember {
  name: string
  offset: number
  size: number
}

const block = 512
const maxHeader = 1024 * 1024 // a long name or its fields

function text(bytes: Buffer): string {
  const end = bytes.indexOf(0)
  return bytes.toString('utf8', 0, end < 0 ? bytes.length : end)
}

/** Octal digits, or big-endian bytes when the first has bit 7 set (files over 8 GiB). */
function sizeOf(field: Buffer): number {
  if (field[0]! & 0x80) {
    let size = field[0]! & 0x7f
    for (const byte of field.subarray(1)) size = size * 256 + byte
    return size
  }
  return Number.parseInt(text(field).trim() || '0', 8)
}

type Override = { path?: string; size?: string }

/** Those of a pax extended header: lines "LENGTH key=value\n". */
function paxFields(bytes: Buffer): Override {
  const fields: Override = {}
  for (let at = 0; at < bytes.length; ) {
    const gap = at + bytes.subarray(at, at + 20).indexOf(32)
    const length = Number.parseInt(bytes.toString('latin1', at, gap), 10)
    if (gap < at || !(length > 0)) break
    const [key, ...value] = bytes.toString('utf8', gap + 1, at + length - 1).split('=')
    if (key === 'path' || key === 'size') fields[key] = value.join('=')
    at += length
  }
  return fields
}

function headerName(header: Buffer): string {
  const name = text(header.subarray(0, 100))
  const prefix = text(header.subarray(345, 500))
  return header.toString('latin1', 257, 262) === 'ustar' && prefix !== '' ? `${prefix}/${name}` : name
}

/** Names and places of all files of an archive, seeking over their data. */
export async function indexTar(path: string, pool: FilePool): Promise<TarMember[]> {
  const size = statSync(path).size
  const members: TarMember[] = []
  let override: Override = {}
  for (let at = 0; at + block <= size; ) {
    const header = await pool.read(path, at, block)
    if (header.every((byte) => byte === 0)) return members
    const length = override.size ? Number(override.size) : sizeOf(header.subarray(124, 136))
    const type = String.fromCharCode(header[156]!)
    const data = at + block
    const most = type === 'L' || type === 'x' ? maxHeader : size
    if (!Number.isSafeInteger(length) || length < 0 || length > most || data + length > size)
      throw brokenTar(path, at, size)
    if (type === 'L') override.path = text(await pool.read(path, data, length))
    else if (type === 'x') override = { ...override, ...paxFields(await pool.read(path, data, length)) }
    else if (type !== 'g') {
      if (type === '0' || type === '\0')
        members.push({ name: override.path ?? headerName(header), offset: data, size: length })
      override = {}
    }
    at = data + Math.ceil(length / block) * block
  }
  return members
}

function brokenTar(path: string, at: number, size: number): Mismatch {
  return new Mismatch({
    where: path,
    field: `byte ${at}`,
    expected: 'a tar header whose data fit in the file',
    got: `the file ends at byte ${size}`,
    hint: 'the last complete member ends at that byte: truncated download, or not a tar archive',
  })
}
