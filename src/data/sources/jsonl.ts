// Our own JSONL: {"id", "image": path, "mask": RLE | {"polygons"} | path of a PNG, "caption" or "query"?, "category"?, ...}, a record
// a line, paths relative to the file.
import { createReadStream } from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import {
  isObject,
  type JsonObject,
  Mismatch,
  parseJson,
  refuseFailedDownload,
  regularFile,
  sha256,
  tryJsonObject,
  unreadable,
} from '../../core/index.ts'
import { decodeRle, type Mask, maskFromPng, polygonsToMask, type Rle } from '../../mask/index.ts'
import { cachedIndex, packNumbers, unpackNumbers } from '../cache.ts'
import { asBadRecord, BadRecord, type RecordSource, type Region, type RegionOptions } from '../example.ts'
import { type FilePool, readStored } from '../files.ts'
import { PackedStrings } from '../strings.ts'
import { nonEmpty, withCategory } from './regions.ts'

interface LineIndex {
  /** Byte offset and length of each line that is not blank, in turn. */
  spans: string
  ids: string[]
  /** Line numbers, from 1. */
  lines: string
  /** Records whose id another record had before. */
  duplicates: number[]
  /** Records that have a caption. */
  captions: number
}

/** Both skip a byte order mark. */
const utf8 = new TextDecoder('utf-8', { fatal: true })
const readable = new TextDecoder()

/** A record is a path, a mask and a sentence; a longer line is another kind of file. */
const maxLine = 16 * 1024 * 1024

interface Line {
  offset: number
  length: number
  /** null for a line that is too long to be kept. */
  bytes: Buffer | null
}

/** Byte spans of lines without their newlines; one line is in memory at a time. */
async function* lineSpans(path: string): AsyncGenerator<Line> {
  let pending: Buffer[] = []
  let start = 0
  let at = 0
  const line = (end: number): Line => {
    const length = end - start
    const bytes = length > maxLine ? null : Buffer.concat(pending)
    pending = []
    return { offset: start, length, bytes }
  }
  for await (const piece of pieces(path)) {
    let from = 0
    for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, from)) {
      pending.push(piece.subarray(from, end))
      yield line(at + end)
      from = end + 1
      start = at + from
    }
    at += piece.length
    if (at - start <= maxLine) pending.push(piece.subarray(from))
    else pending = []
  }
  if (at > start) yield line(at)
}

async function* pieces(path: string): AsyncGenerator<Buffer> {
  let at = 0
  try {
    for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
      at += piece.length
      yield piece
    }
  } catch (error) {
    throw unreadable(path, at, 1 << 20, error)
  }
}

const captionOf = (line: JsonObject) => line['caption'] ?? line['query'] ?? null

async function buildIndex(path: string, name: string): Promise<LineIndex> {
  const spans: number[] = []
  const lines: number[] = []
  const ids: string[] = []
  const duplicates: number[] = []
  const seen = new Set<string>()
  let [line, captions] = [0, 0]
  for await (const { offset, length, bytes } of lineSpans(path)) {
    line++
    if (bytes?.toString('latin1').trim() === '') continue
    const record = bytes && tryJsonObject(readable.decode(bytes))
    if (!record || captionOf(record) !== null) captions++ // a line that cannot be read is rejected when it is used
    const stated = record?.id
    const id = typeof stated === 'string' || typeof stated === 'number' ? String(stated) : `${name}/${line}`
    if (seen.has(id)) duplicates.push(ids.length)
    seen.add(id)
    ids.push(id)
    spans.push(offset, length)
    lines.push(line)
  }
  return { spans: packNumbers(spans), ids, lines: packNumbers(lines), duplicates, captions }
}

function parseLine(bytes: Buffer, where: string): JsonObject {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    throw new BadRecord('not-utf8', { where, expected: 'UTF-8 text', got: `bytes ${badBytes(bytes)}` })
  }
  let value: unknown
  try {
    value = parseJson(text, where, 'a JSON object')
  } catch (error) {
    throw asBadRecord(error, 'bad-record', where)
  }
  if (isObject(value)) return value
  throw new BadRecord('bad-record', { where, expected: 'a JSON object', got: value })
}

/** The first bytes that are not UTF-8, with a few around them. */
function badBytes(bytes: Buffer): string {
  const good = Buffer.byteLength(bytes.toString('utf8').split('\ufffd')[0]!)
  return `${bytes.subarray(good, good + 8).toString('hex')} at byte ${good} of the line`
}

/** A mask in any of the three forms users write. */
async function userMask(value: unknown, size: unknown, folder: string, where: string): Promise<Mask> {
  if (value === undefined || value === null) {
    throw new BadRecord('no-mask', { where, field: 'mask', expected: 'an RLE, polygons or a PNG path', got: value })
  }
  try {
    if (typeof value === 'string') return await maskFromPng(await readMaskFile(value, folder, where), where)
    const polygons = (value as { polygons?: number[][] }).polygons
    if (!polygons) return decodeRle(value as Rle, where)
    const [height, width] = sizeOf((value as { size?: unknown }).size ?? size, where)
    return polygonsToMask(polygons, height, width, where)
  } catch (error) {
    throw asBadRecord(error, 'mask-unreadable', where, 'mask')
  }
}

function sizeOf(size: unknown, where: string): [number, number] {
  if (Array.isArray(size) && size.length === 2) return size as [number, number] // polygonsToMask checks the numbers
  const hint = 'polygons need the image size: {"polygons": [...], "size": [height, width]}'
  throw new Mismatch({ where, field: 'mask.size', expected: '[height, width]', got: size ?? null, hint })
}

async function readMaskFile(path: string, folder: string, where: string): Promise<Buffer> {
  try {
    return await readStored(isAbsolute(path) ? path : join(folder, path))
  } catch (error) {
    const info = { where, field: 'mask', expected: 'a PNG file', got: error }
    throw new BadRecord('mask-unreadable', info, { cause: error })
  }
}

async function toRegion(line: JsonObject, id: string, folder: string, where: string, usesNoCaption = false) {
  const { image, mask, caption: _caption, category, size, id: _, ...meta } = line
  const caption = captionOf(line)
  if (typeof image !== 'string' || image === '') {
    throw new BadRecord('image-missing', { where, field: 'image', expected: 'a path', got: image ?? null })
  }
  if (typeof caption !== 'string' && !(usesNoCaption && caption === null)) {
    throw new BadRecord('empty-caption', { where, field: 'caption', expected: 'text', got: caption })
  }
  return {
    id,
    where,
    image: { path: isAbsolute(image) ? image : join(folder, image) },
    caption: caption === null ? '' : nonEmpty(caption, where, 'caption'),
    mask: await userMask(mask, size, folder, where),
    ...withCategory(category),
    meta,
  }
}

export async function openJsonl(path: string, pool: FilePool): Promise<RecordSource> {
  const name = basename(path).replace(/\.jsonl$/, '')
  const folder = dirname(path)
  const { size } = regularFile(path)
  pool.watch(path)
  refuseFailedDownload(await pool.read(path, 0, Math.min(512, size)), path, 'a JSON object a line')
  const stored = await cachedIndex({ kind: 'jsonl-4', files: [path], settings: name }, () => buildIndex(path, name))
  const spans = unpackNumbers(stored.spans)
  const lines = unpackNumbers(stored.lines)
  const ids = new PackedStrings(stored.ids)
  const duplicates = new Set(stored.duplicates)

  const region = async (index: number, options?: RegionOptions): Promise<Region> => {
    const where = `${path}: line ${lines[index]}`
    const id = ids.at(index)
    if (duplicates.has(index)) {
      throw new BadRecord('duplicate-id', { where, field: 'id', expected: 'an id used once', got: id })
    }
    const [offset, length] = [spans[2 * index]!, spans[2 * index + 1]!]
    if (length > maxLine) {
      const got = `${length} bytes`
      throw new BadRecord('bad-record', { where, expected: `a line of at most ${maxLine} bytes`, got })
    }
    const line = parseLine(await pool.read(path, offset, length), where)
    const found = await toRegion(line, id, folder, where, options?.usesNoCaption)
    return options?.image === false ? { ...found, image: null } : found
  }
  return {
    name,
    format: 'JSONL of paths',
    length: ids.length,
    fingerprint: sha256(JSON.stringify([name, size, ids.length])),
    schema: ['id, image (path), mask (RLE, polygons or PNG path), caption or query?, category?'],
    withoutCaptions: stored.captions === 0,
    warnings: duplicates.size > 0 ? [`${path}: ${duplicates.size} records repeat an id and will be rejected`] : [],
    id: (index) => ids.at(index),
    region,
  }
}
