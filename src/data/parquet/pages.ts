// Checks every page before it is decoded: sizes, counts, check sum, and the runs of its levels and indices, whose lengths the decoder
// does not limit.
import type { PageHeader, PageLocation } from 'hyparquet/src/types.js'
import { crc32, Mismatch } from '../../core/index.ts'
import { damagedHint } from '../files.ts'
import type { Chunk } from './metadata.ts'

/** (bytes, length when unpacked) => unpacked */
export type Unpack = (packed: Uint8Array, length: number) => Uint8Array

const encodings = [
  'PLAIN',
  'PLAIN_DICTIONARY',
  'RLE',
  'RLE_DICTIONARY',
  'DELTA_BINARY_PACKED',
  'DELTA_LENGTH_BYTE_ARRAY',
  'BYTE_STREAM_SPLIT',
]

interface PageTools {
  /** Reads a page header, leaving the reader at the page. */
  header(reader: { view: DataView; offset: number }): PageHeader
  /** null for pages that are not packed. */
  unpacker(codec: string): Unpack | null
}

export class PageChecker {
  readonly #chunk: Chunk
  readonly #where: string
  readonly #tools: PageTools
  /** Values of the dictionary page met before. */
  #dictionary = 0
  /** Rows that began so far: values at repetition level 0. */
  #rows = 0

  constructor(chunk: Chunk, where: string, tools: PageTools) {
    this.#chunk = chunk
    this.#where = where
    this.#tools = tools
  }

  /** Checks the pages in `bytes`, a part of the file that begins at byte `at`. */
  check(bytes: ArrayBuffer, at: number, locations: readonly PageLocation[] | null): void {
    const reader = { view: new DataView(bytes), offset: 0 }
    let values = 0
    this.#rows = 0
    while (reader.offset < bytes.byteLength - 1) {
      const place = at + reader.offset
      const header = this.#tools.header(reader)
      const size = this.#sizes(header, place, bytes.byteLength - reader.offset)
      const count = this.#page(header, new Uint8Array(bytes, reader.offset, size), place)
      if (header.type !== 'DICTIONARY_PAGE') {
        values += count
        if (locations) this.#located(place, count, locations)
      }
      reader.offset += size
    }
    const whole = at === this.#chunk.begin && at + bytes.byteLength === this.#chunk.end
    if (whole ? values !== this.#chunk.values : values > this.#chunk.values)
      this.#fail(at, `${this.#chunk.values} values in its pages`, values)
    if (whole && this.#chunk.maxRepetition > 0 && this.#rows !== this.#chunk.rows)
      this.#fail(at, `${this.#chunk.rows} rows in its pages`, this.#rows)
  }

  #sizes(header: PageHeader, place: number, left: number): number {
    const { compressed_page_size: packed, uncompressed_page_size: unpacked } = header
    const fits = Number.isInteger(packed) && packed >= 0 && packed <= left
    if (!fits) this.#fail(place, `a page inside the ${left} bytes of its column`, `${packed} bytes`)
    if (!(Number.isInteger(unpacked) && unpacked >= 0 && unpacked <= Math.max(16 * 1024 * 1024, 1100 * packed)))
      this.#fail(place, `a page that ${packed} bytes can hold`, `${unpacked} bytes`)
    return packed
  }

  /** Values of the page, nulls included. */
  #page(header: PageHeader, packed: Uint8Array, place: number): number {
    if (header.crc !== undefined && header.crc >>> 0 !== crc32(packed))
      this.#fail(place, 'a page with its check sum', 'another sum')
    if (header.dictionary_page_header) {
      const { num_values: count } = header.dictionary_page_header
      if (!(count >= 0 && count <= 8 * header.uncompressed_page_size))
        this.#fail(place, 'a dictionary whose values fit', `${count} values`)
      this.#open(header, packed)
      this.#dictionary = count
      return count
    }
    const page = header.data_page_header ?? header.data_page_header_v2
    const count = page?.num_values ?? -1
    if (!page || !(Number.isInteger(count) && count >= 0 && count <= this.#chunk.values))
      this.#fail(place, `a data page of at most ${this.#chunk.values} values`, `${header.type}, ${count} values`)
    if (!encodings.includes(page!.encoding))
      this.#fail(place, `values written as ${encodings.join(', ')}`, String(page!.encoding))
    if (header.data_page_header) this.#pageV1(header, packed, place, count)
    else this.#pageV2(header, packed, place, count)
    return count
  }

  #pageV1(header: PageHeader, packed: Uint8Array, place: number, count: number): void {
    const bytes = this.#open(header, packed)
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    let at = 0
    for (const [i, max] of [this.#chunk.maxRepetition, this.#chunk.maxDefinition].entries()) {
      if (max === 0) continue
      const length = at + 4 <= bytes.length ? view.getUint32(at, true) : Number.POSITIVE_INFINITY
      if (at + 4 + length > bytes.length) this.#fail(place, 'levels inside the page', `${length} bytes of them`)
      const zeros = this.#runs(bytes.subarray(at + 4, at + 4 + length), bitsFor(max), count, place, max)
      if (i === 0) this.#rows += zeros
      at += 4 + length
    }
    this.#indices(header.data_page_header!.encoding, bytes.subarray(at), count, place)
  }

  #pageV2(header: PageHeader, packed: Uint8Array, place: number, count: number): void {
    const page = header.data_page_header_v2!
    const { repetition_levels_byte_length: first, definition_levels_byte_length: second, num_nulls: nulls } = page
    const inside = first >= 0 && second >= 0 && first + second <= packed.length && nulls >= 0 && nulls <= count
    if (!inside) this.#fail(place, 'levels and nulls inside the page', { first, second, nulls })
    if (!(page.num_rows >= 0 && page.num_rows <= count)) this.#fail(place, `at most ${count} rows`, page.num_rows)
    const { maxRepetition, maxDefinition } = this.#chunk
    const levels = (bytes: Uint8Array, max: number) => this.#runs(bytes, bitsFor(max), count, place, max)
    if (maxRepetition > 0) this.#rows += levels(packed.subarray(0, first), maxRepetition)
    if (maxDefinition > 0) levels(packed.subarray(first, first + second), maxDefinition)
    const rest = packed.subarray(first + second)
    const values = page.is_compressed === false ? rest : this.#open(header, rest, first + second)
    this.#indices(page.encoding, values, count - nulls, place)
  }

  /** Indices into a dictionary, or packed truth values: the other encodings have a length for each value. */
  #indices(encoding: string, bytes: Uint8Array, count: number, place: number): void {
    if (encoding === 'RLE') {
      if (bytes.length >= 4) this.#runs(bytes.subarray(4), 1, count, place, 1)
    } else if (encoding.endsWith('_DICTIONARY') && bytes.length > 0) {
      if (bytes[0]! > 0) this.#runs(bytes.subarray(1), bytes[0]!, count, place, this.#dictionary - 1)
    }
  }

  #open(header: PageHeader, packed: Uint8Array, levels = 0): Uint8Array {
    const unpack = this.#tools.unpacker(this.#chunk.codec)
    return unpack ? unpack(packed, header.uncompressed_page_size - levels) : packed
  }

  /** Checks runs of Parquet's hybrid coding, which may have fewer values if some are null. Returns how many are 0. */
  #runs(bytes: Uint8Array, width: number, values: number, place: number, max: number): number {
    if (width > 32) this.#fail(place, 'numbers of at most 32 bits', `${width} bits`)
    let seen = 0
    let zeros = 0
    for (let at = 0; seen < values && at < bytes.length; ) {
      let header = 0
      for (let shift = 0, byte = 0x80; byte & 0x80; shift += 7) {
        if (at >= bytes.length || shift > 28) this.#fail(place, 'complete runs', 'an end inside one')
        byte = bytes[at++]!
        header += (byte & 0x7f) * 2 ** shift
      }
      const half = Math.floor(header / 2)
      const packed = header % 2 === 1
      const count = packed ? 8 * half : half
      // groups of eight are filled up, some writers fill a whole block
      if (count > values - seen + (packed ? 511 : 0)) this.#fail(place, `runs of ${values} values`, `a run of ${count}`)
      const used = Math.min(count, values - seen)
      const length = packed ? half * width : Math.ceil(width / 8)
      zeros += this.#run(bytes.subarray(at, at + length), packed ? used : 1, width, place, max) * (packed ? 1 : used)
      seen += count
      at += length
    }
    return zeros
  }

  /** Checks that the values of one run are at most `max`. Returns how many are 0. */
  #run(bytes: Uint8Array, count: number, width: number, place: number, max: number): number {
    let zeros = 0
    for (let i = 0; i < count && ((i + 1) * width) / 8 <= bytes.length; i++) {
      let value = 0
      for (let bit = 0; bit < width; bit++) {
        const at = i * width + bit
        value += ((bytes[at >> 3]! >> (at & 7)) & 1) * 2 ** bit
      }
      if (value > max) this.#fail(place, `levels and indices of at most ${max}`, value)
      if (value === 0) zeros++
    }
    return zeros
  }

  /** A page must be where the index says, with the rows it says. */
  #located(place: number, count: number, locations: readonly PageLocation[]): void {
    const i = locations.findIndex((location) => Number(location.offset) === place)
    if (i < 0) this.#fail(place, 'a page that the page index lists', 'another')
    const next = locations[i + 1]
    if (this.#chunk.maxRepetition > 0 || !next) return
    const rows = Number(next.first_row_index) - Number(locations[i]!.first_row_index)
    if (rows !== count) this.#fail(place, `a page of ${rows} rows, as the page index says`, count)
  }

  #fail(place: number, expected: string, got: unknown): never {
    const field = `${this.#chunk.path} in row group ${this.#chunk.group}: page at byte ${place}`
    throw new Mismatch({ where: this.#where, field, expected, got, hint: damagedHint })
  }
}

function bitsFor(max: number): number {
  return 32 - Math.clz32(max)
}

/** Pages in rising order from row 0, inside their column. */
export function checkLocations(locations: readonly PageLocation[], chunk: Chunk, where: string): void {
  const wrong = locations.findIndex((page, i) => {
    const before = locations[i - 1]
    const rising = before
      ? page.first_row_index > before.first_row_index && page.offset > before.offset
      : Number(page.first_row_index) === 0
    const inside = Number(page.offset) >= chunk.begin && Number(page.offset) + page.compressed_page_size <= chunk.end
    return !(rising && inside && page.compressed_page_size >= 0 && Number(page.first_row_index) < chunk.rows)
  })
  if (wrong < 0 && locations.length > 0) return
  const field = `${chunk.path} in row group ${chunk.group}: page index at byte ${chunk.index.begin}`
  const { compressed_page_size: size, offset, first_row_index: row } = locations[Math.max(wrong, 0)] ?? {}
  const got = wrong < 0 ? 'no pages' : `page ${wrong}: ${size} bytes at ${offset}, from row ${row}`
  throw new Mismatch({ where, field, expected: 'pages in rising order inside the column', got })
}
