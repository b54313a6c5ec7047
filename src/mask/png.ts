import { promisify } from 'node:util'
import { deflate, inflate } from 'node:zlib'
import { crc32, Mismatch, messageOf } from '../core/index.ts'
import { type Mask, maskFromDense, toDense } from './mask.ts'

// A separate reader because a mask needs the stored samples: a decoder for pictures turns palette indices into
// colours and 16-bit samples into their high byte, and both can turn "inside" into 0.

const signature = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10])
/** Samples per pixel by colour type: grey, RGB, palette, grey + alpha, RGBA. */
const samplesOf: Record<number, number> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 }
/** Adam7 passes: first column, first row, column step, row step. */
const adam7 = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const

/** As for images; a header of 33 bytes must not decide over memory. */
const maxPixels = 100_000_000
/** Samples of all rows once unpacked; twice this is in memory for a moment. */
const maxUnpacked = 400_000_000

interface Header {
  width: number
  height: number
  depth: number
  samples: number
  colourSamples: number
  interlaced: boolean
}

function bad(where: string, expected: string, got: unknown): Mismatch {
  return new Mismatch({ where, expected, got, hint: 'masks are read from PNG: non-zero = inside' })
}

function readHeader(data: Buffer, where: string): Header {
  if (data.length !== 13) throw bad(where, 'an IHDR of 13 bytes', data.length)
  const type = data[9]!
  const samples = samplesOf[type]
  const depth = data[8]!
  if (samples === undefined || ![1, 2, 4, 8, 16].includes(depth) || (depth < 8 && type !== 0 && type !== 3))
    throw bad(where, 'a PNG colour type and depth', { type, depth })
  const width = data.readUInt32BE(0)
  const height = data.readUInt32BE(4)
  if (width === 0 || height === 0 || width * height > maxPixels)
    throw bad(where, `a size of 1 to ${maxPixels} pixels`, [height, width])
  if ((width * height * samples * depth) / 8 > maxUnpacked)
    throw bad(where, `at most ${maxUnpacked} bytes of pixels`, { height, width, samples, depth })
  const colourSamples = type === 4 || type === 6 ? samples - 1 : samples
  return { width, height, depth, samples, colourSamples, interlaced: data[12] === 1 }
}

/** The header and the joined compressed data. */
function readChunks(bytes: Uint8Array, where: string): { header: Header; packed: Buffer } {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (!file.subarray(0, 8).equals(signature)) throw bad(where, 'a PNG file', file.subarray(0, 8).toString('hex'))
  let header: Header | undefined
  const pieces: Buffer[] = []
  for (let at = 8; ; ) {
    const length = at + 12 <= file.length ? file.readUInt32BE(at) : Infinity
    if (at + 12 + length > file.length) throw bad(where, 'a complete PNG file', `an end after ${file.length} bytes`)
    const name = file.toString('latin1', at + 4, at + 8)
    const data = file.subarray(at + 8, at + 8 + length)
    if (crc32(file.subarray(at + 4, at + 8 + length)) !== file.readUInt32BE(at + 8 + length))
      throw bad(where, `a ${name} chunk with its check sum`, 'another sum: the file is damaged')
    if (name === 'IHDR') header = readHeader(data, where)
    else if (name === 'IDAT') pieces.push(data)
    else if (name === 'IEND') break
    at += 12 + length
  }
  if (!header || pieces.length === 0) throw bad(where, 'IHDR and IDAT chunks', 'none')
  return { header, packed: Buffer.concat(pieces) }
}

function paeth(a: number, b: number, c: number): number {
  const pa = Math.abs(b - c)
  const pb = Math.abs(a - c)
  const pc = Math.abs(a + b - 2 * c)
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c
}

/** Undoes one row's filter in place; `step` is the distance in bytes to the pixel on the left. */
function unfilter(row: Uint8Array, above: Uint8Array, filter: number, step: number): boolean {
  const n = row.length
  if (filter === 1) for (let i = step; i < n; i++) row[i] = row[i]! + row[i - step]!
  else if (filter === 2) for (let i = 0; i < n; i++) row[i] = row[i]! + above[i]!
  else if (filter === 3)
    for (let i = 0; i < n; i++) row[i] = row[i]! + (((i >= step ? row[i - step]! : 0) + above[i]!) >> 1)
  else if (filter === 4) {
    for (let i = 0; i < n; i++) {
      const left = i >= step ? row[i - step]! : 0
      row[i] = row[i]! + paeth(left, above[i]!, i >= step ? above[i - step]! : 0)
    }
  }
  return filter <= 4
}

/** Number of pixel x of an unfiltered row: its sample. */
type PixelReader = (row: Uint8Array, x: number, h: Header) => number

function packedSample(row: Uint8Array, x: number, { depth }: Header): number {
  return (row[(x * depth) >> 3]! >> (8 - depth - ((x * depth) & 7))) & ((1 << depth) - 1)
}

/** 1 if the pixel has a non-zero colour sample; alpha says how to draw, not what is inside. */
const insideAt: PixelReader = (row, x, h) => {
  if (h.depth < 8) return packedSample(row, x, h) === 0 ? 0 : 1
  const sample = h.depth >> 3
  const at = x * h.samples * sample
  for (let i = at; i < at + h.colourSamples * sample; i++) if (row[i] !== 0) return 1
  return 0
}

/** The palette index or grey level; colours are read if they are greys. */
function labelReader(where: string): PixelReader {
  return (row, x, h) => {
    if (h.depth < 8) return packedSample(row, x, h)
    const bytes = h.depth >> 3
    const at = x * h.samples * bytes
    const sampleAt = (i: number) => (bytes === 1 ? row[at + i]! : (row[at + 2 * i]! << 8) | row[at + 2 * i + 1]!)
    const label = sampleAt(0)
    for (let i = 1; i < h.colourSamples; i++)
      if (sampleAt(i) !== label) throw bad(where, 'a PNG of palette indices or grey levels', 'one of colours')
    return label
  }
}

/** Row-major numbers of the unpacked, still filtered rows. */
function readRows(raw: Uint8Array, h: Header, where: string, read: PixelReader): Uint16Array {
  const numbers = new Uint16Array(h.width * h.height)
  const step = Math.max(1, (h.depth * h.samples) >> 3)
  let at = 0
  for (const [x0, y0, dx, dy] of h.interlaced ? adam7 : ([[0, 0, 1, 1]] as const)) {
    const columns = Math.ceil((h.width - x0) / dx)
    if (columns <= 0) continue
    const rowBytes = (columns * h.samples * h.depth + 7) >> 3
    let above: Uint8Array = new Uint8Array(rowBytes)
    for (let y = y0; y < h.height; y += dy) {
      const row = raw.subarray(at + 1, at + 1 + rowBytes)
      if (row.length < rowBytes) throw bad(where, `${h.height} rows`, `an end in row ${y}`)
      if (!unfilter(row, above, raw[at]!, step)) throw bad(where, 'a row filter of 0 to 4', raw[at])
      for (let i = 0; i < columns; i++) numbers[y * h.width + x0 + i * dx] = read(row, i, h)
      above = row
      at += 1 + rowBytes
    }
  }
  return numbers
}

async function readPng(bytes: Uint8Array, where: string, read: PixelReader): Promise<Labels> {
  const { header, packed } = readChunks(bytes, where)
  const most = header.height * (header.width * header.samples * (header.depth / 8) + 2) * 2 + 64
  let raw: Buffer
  try {
    raw = await promisify(inflate)(packed, { maxOutputLength: Math.ceil(most) })
  } catch (error) {
    throw bad(where, 'PNG data that unpack', messageOf(error))
  }
  return { height: header.height, width: header.width, numbers: readRows(raw, header, where, read) }
}

/** A PNG as a mask: grey, palette index or any colour sample above 0 is inside; alpha is ignored. */
export async function maskFromPng(bytes: Uint8Array, where = 'mask PNG'): Promise<Mask> {
  const { height, width, numbers } = await readPng(bytes, where, insideAt)
  return maskFromDense(Uint8Array.from(numbers), height, width)
}

/** The number of each pixel, row-major: 0 background, 1.. objects. */
export interface Labels {
  height: number
  width: number
  numbers: Uint16Array
}

/** A PNG whose palette index or grey level names the object. */
export async function labelsFromPng(bytes: Uint8Array, where = 'mask PNG'): Promise<Labels> {
  return await readPng(bytes, where, labelReader(where))
}

function chunk(name: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(name, 'latin1'), data])
  const length = Buffer.alloc(4)
  length.writeUInt32BE(data.length)
  const check = Buffer.alloc(4)
  check.writeUInt32BE(crc32(body))
  return Buffer.concat([length, body, check])
}

/** A grey PNG of one bit a pixel, white = inside. */
export async function maskToPng(mask: Mask): Promise<Uint8Array> {
  const { height, width } = mask
  const dense = toDense(mask)
  const rowBytes = 1 + ((width + 7) >> 3)
  const rows = new Uint8Array(height * rowBytes)
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) if (dense[y * width + x]) rows[y * rowBytes + 1 + (x >> 3)]! |= 128 >> (x & 7)
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header[8] = 1
  const packed = await promisify(deflate)(rows)
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', packed), chunk('IEND', new Uint8Array(0))])
}
