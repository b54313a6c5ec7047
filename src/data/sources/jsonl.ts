// Our own JSONL: {"id", "image": path, "mask": RLE | {"polygons"} | path of a PNG, "caption", "category"?, ...}, a record
// a line, paths relative to the file.
import { createReadStream, statSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { Mismatch, messageOf, sha256 } from '../../core/index.ts'
import { decodeRle, type Mask, maskFromPng, polygonsToMask, type Rle } from '../../mask/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import { asBadRecord, BadRecord, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import { FilePool } from '../files.ts'
import { PackedStrings } from '../strings.ts'
import { categoryOf, nonEmpty } from './regions.ts'

interface LineIndex {
  /** Byte offset and length of each line that is not blank, in turn. */
  spans: string
  ids: string[]
  /** Line numbers, from 1. */
  lines: string
  /** Records whose id another record had before. */
  duplicates: number[]
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Byte spans of lines, newlines excluded. */
async function* lineSpans(path: string): AsyncGenerator<{ offset: number; bytes: Buffer }> {
  let held: Buffer[] = []
  let start = 0
  let at = 0
  for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    let from = 0
    for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, from)) {
      yield { offset: start, bytes: Buffer.concat([...held, piece.subarray(from, end)]) }
      held = []
      from = end + 1
      start = at + from
    }
    held.push(piece.subarray(from))
    at += piece.length
  }
  const rest = Buffer.concat(held)
  if (rest.length > 0) yield { offset: start, bytes: rest }
}

/** The id a line states; lines that cannot be read get their number and fail when asked for. */
function statedId(bytes: Buffer): string | null {
  try {
    const id = (JSON.parse(bytes.toString('utf8')) as { id?: unknown } | null)?.id
    return typeof id === 'string' || typeof id === 'number' ? String(id) : null
  } catch {
    return null
  }
}

async function buildIndex(path: string, name: string): Promise<LineIndex> {
  const spans: number[] = []
  const lines: number[] = []
  const ids: string[] = []
  const duplicates: number[] = []
  const seen = new Set<string>()
  let line = 0
  for await (const { offset, bytes } of lineSpans(path)) {
    line++
    if (bytes.toString('latin1').trim() === '') continue
    const id = statedId(bytes) ?? `${name}/${line}`
    if (seen.has(id)) duplicates.push(ids.length)
    seen.add(id)
    ids.push(id)
    spans.push(offset, bytes.length)
    lines.push(line)
  }
  return { spans: packNumbers(Float64Array.from(spans)), ids, lines: packNumbers(Float64Array.from(lines)), duplicates }
}

function parseLine(bytes: Buffer, where: string): Record<string, unknown> {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    throw new BadRecord('not-utf8', { where, expected: 'UTF-8 text', got: `bytes ${badBytes(bytes)}` })
  }
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
    throw new BadRecord('bad-record', { where, expected: 'a JSON object', got: value })
  } catch (error) {
    if (error instanceof BadRecord) throw error
    throw new BadRecord('bad-record', { where, expected: 'a JSON object', got: messageOf(error) }, { cause: error })
  }
}

/** The first bytes that are not UTF-8, with a few around them. */
function badBytes(bytes: Buffer): string {
  const good = Buffer.byteLength(bytes.toString('utf8').split('\ufffd')[0]!)
  return `${bytes.subarray(good, good + 8).toString('hex')} at byte ${good} of the line`
}

/** A mask in any of the three forms users write. */
export async function userMask(value: unknown, size: unknown, folder: string, where: string): Promise<Mask> {
  if (value === undefined || value === null) {
    throw new BadRecord('no-mask', { where, field: 'mask', expected: 'an RLE, polygons or a PNG path', got: value })
  }
  try {
    if (typeof value === 'string') return await maskFromPng(await readMaskFile(value, folder, where), where)
    const polygons = (value as { polygons?: number[][] }).polygons
    if (!polygons) return decodeRle(value as Rle, where)
    const [height, width] = ((value as { size?: number[] }).size ?? size ?? []) as number[]
    if (!height || !width) {
      const hint = 'polygons need the image size: {"polygons": [...], "size": [height, width]}'
      throw new Mismatch({ where, field: 'mask.size', expected: '[height, width]', got: size ?? null, hint })
    }
    return polygonsToMask(polygons, height, width)
  } catch (error) {
    throw asBadRecord(error, 'mask-unreadable', where, 'mask')
  }
}

async function readMaskFile(path: string, folder: string, where: string): Promise<Buffer> {
  const full = isAbsolute(path) ? path : join(folder, path)
  try {
    return await readFile(full)
  } catch (error) {
    throw new BadRecord(
      'mask-unreadable',
      { where, field: 'mask', expected: 'a PNG file', got: error },
      { cause: error },
    )
  }
}

async function toRegion(line: Record<string, unknown>, id: string, folder: string, where: string): Promise<Region> {
  const { image, mask, caption, category, size, id: _, ...meta } = line
  if (typeof image !== 'string' || image === '') {
    throw new BadRecord('image-missing', { where, field: 'image', expected: 'a path', got: image ?? null })
  }
  if (typeof caption !== 'string') {
    throw new BadRecord('empty-caption', { where, field: 'caption', expected: 'text', got: caption ?? null })
  }
  const region: Region = {
    id,
    where,
    image: { path: isAbsolute(image) ? image : join(folder, image) },
    caption: nonEmpty(caption, where, 'caption'),
    mask: await userMask(mask, size, folder, where),
    meta,
  }
  const categories = categoryOf(category)
  if (categories) region.category = categories
  return region
}

export async function openJsonl(path: string): Promise<RecordSource> {
  const name = basename(path).replace(/\.jsonl$/, '')
  const folder = dirname(path)
  const stored = await cachedIndex({ kind: 'jsonl-1', files: [path], settings: name }, () => buildIndex(path, name))
  const spans = unpackNumbers(stored.spans)
  const lines = unpackNumbers(stored.lines)
  const ids = new PackedStrings(stored.ids)
  const duplicates = new Set(stored.duplicates)
  const pool = new FilePool()

  const region = async (index: number, options?: RegionOptions): Promise<Region> => {
    const where = `${path}: line ${lines[index]}`
    const id = ids.at(index)
    if (duplicates.has(index)) {
      throw new BadRecord('duplicate-id', { where, field: 'id', expected: 'an id used once', got: id })
    }
    const bytes = await pool.read(path, spans[2 * index]!, spans[2 * index + 1]!)
    const found = await toRegion(parseLine(bytes, where), id, folder, where)
    return options?.image === false ? { ...found, image: null } : found
  }
  return {
    name,
    format: 'JSONL of paths',
    length: ids.length,
    fingerprint: sha256(JSON.stringify([name, statSync(path).size, ids.length])),
    schema: ['id, image (path), mask (RLE, polygons or PNG path), caption, category?'],
    warnings: duplicates.size > 0 ? [`${path}: ${duplicates.size} records repeat an id and will be rejected`] : [],
    leftOut: {},
    broken: [],
    id: (index) => ids.at(index),
    region,
    close: () => pool.close(),
  }
}
