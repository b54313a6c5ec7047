import { type FileHandle, open } from 'node:fs/promises'
import { type DataType, Message, type Schema } from 'apache-arrow'
import { expecting, Mismatch, refuseFailedDownload, regularFile, unreadable } from '../../core/index.ts'
import { damagedHint } from '../files.ts'
import { checkMessage, footerCounts } from './flat.ts'
import { BatchChecker, type BatchHeader, type Column, dictionaryLayout, type Layout, layout } from './layout.ts'

/** Location of a message in its shard. The body of a batch is read row by row, never as a whole. */
interface MessagePlace {
  metaOffset: number
  metaLength: number
  bodyOffset: number
  bodyLength: number
}

export interface BatchEntry extends MessagePlace {
  rows: number
}

export interface ShardIndex {
  /** The schema message as it is in the file. */
  schemaOffset: number
  schemaLength: number
  batches: BatchEntry[]
  dictionaries: MessagePlace[]
  rows: number
}

const continuation = 0xffffffff
const maxMetadata = 256 * 1024 * 1024

async function readExactly(path: string, file: FileHandle, offset: number, length: number): Promise<Buffer | null> {
  const bytes = Buffer.allocUnsafe(length)
  let at = 0
  while (at < length) {
    const { bytesRead } = await file.read(bytes, at, length - at, offset + at).catch((error) => {
      throw unreadable(path, offset, length, error)
    })
    if (bytesRead === 0) return null
    at += bytesRead
  }
  return bytes
}

interface Frame extends Omit<MessagePlace, 'bodyLength'> {
  message: Message
  end: number
}

class ShardScanner {
  readonly #file: FileHandle
  readonly #path: string
  readonly #size: number
  readonly #hasFooter: boolean

  constructor(file: FileHandle, path: string, size: number, hasFooter: boolean) {
    this.#file = file
    this.#path = path
    this.#size = size
    this.#hasFooter = hasFooter
  }

  /** The message at an offset; null at the end of the stream. */
  async frame(at: number): Promise<Frame | null> {
    if (at === this.#size) return this.#ended(at, false)
    const head = await readExactly(this.#path, this.#file, at, Math.min(8, this.#size - at))
    if (!head || head.length < 4) throw this.truncated(at, 'a message length')
    const marked = head.readUInt32LE(0) === continuation // absent before Arrow 0.15
    if (marked && head.length < 8) throw this.truncated(at, 'a message length')
    const metaLength = head.readInt32LE(marked ? 4 : 0)
    const metaOffset = at + (marked ? 8 : 4)
    if (metaLength === 0) return this.#ended(metaOffset, true)
    if (metaLength < 0 || metaLength > maxMetadata) throw this.#notArrow(at, metaLength)
    if (metaOffset + metaLength > this.#size) throw this.truncated(at, 'the metadata of a message')
    const bytes = await readExactly(this.#path, this.#file, metaOffset, metaLength)
    if (!bytes) throw this.truncated(at, 'the metadata of a message')
    return this.#placed(decodeMessage(bytes, this.#path, metaOffset), at, metaOffset, metaLength)
  }

  #placed(message: Message, at: number, metaOffset: number, metaLength: number): Frame {
    const bodyOffset = metaOffset + metaLength
    const { bodyLength } = message
    if (!(bodyLength >= 0)) {
      const field = `message at byte ${metaOffset}`
      throw new Mismatch({ where: this.#path, field, expected: 'a body of 0 bytes or more', got: bodyLength })
    }
    const end = bodyOffset + bodyLength
    if (end > this.#size) throw this.truncated(at, `the body of a message (${bodyLength} bytes)`)
    return { message, metaOffset, metaLength, bodyOffset, end }
  }

  /** A stream ends with the file; the file format has a footer after the end of its messages. */
  #ended(at: number, stated: boolean): null {
    const rest = this.#size - at
    if (this.#hasFooter && !(stated && rest > 10)) throw this.truncated(at, 'the list of messages, before the footer')
    if (!this.#hasFooter && rest >= 8) {
      const hint = 'a download that was interrupted leaves zeros; fetch the shard again, or pass skipBrokenShards'
      const got = `${rest} bytes after it`
      throw new Mismatch({ where: this.#path, field: `byte ${at}`, expected: 'the end of the file', got, hint })
    }
    return null
  }

  /** The footer of the file format lists the batches; one more or less means that some are lost. */
  async checkFooter(index: ShardIndex): Promise<void> {
    if (!this.#hasFooter) return
    const tail = await readExactly(this.#path, this.#file, this.#size - 10, 10)
    const length = tail?.readInt32LE(0) ?? 0
    if (tail?.toString('latin1', 4) !== 'ARROW1' || length <= 0 || length > this.#size - 18)
      throw this.truncated(this.#size, 'the footer')
    const at = this.#size - 10 - length
    const found = footerCounts((await readExactly(this.#path, this.#file, at, length))!, this.#path, at)
    if (found.batches === index.batches.length && found.dictionaries === index.dictionaries.length) return
    throw new Mismatch({
      where: this.#path,
      field: `footer at byte ${at}`,
      expected: `${found.batches} record batches and ${found.dictionaries} dictionaries`,
      got: `${index.batches.length} and ${index.dictionaries.length}`,
      hint: damagedHint,
    })
  }

  truncated(lastComplete: number, inside: string): Mismatch {
    return new Mismatch({
      where: this.#path,
      field: `byte ${lastComplete}`,
      expected: 'the next Arrow message or the end of the stream',
      got: `the file ends inside ${inside} at byte ${this.#size}`,
      hint: 'the last complete message ends at that byte: the download was interrupted; fetch the shard again, or pass skipBrokenShards',
    })
  }

  #notArrow(at: number, length: number): Mismatch {
    const [got, hint] = [`a metadata length of ${length}`, 'this is not an Arrow IPC stream or file']
    return new Mismatch({ where: this.#path, field: `byte ${at}`, expected: 'an Arrow message', got, hint })
  }
}

/** One pass over message headers only: two small reads a message, bodies are skipped over. */
export async function scanShard(path: string): Promise<ShardIndex> {
  const { size } = regularFile(path)
  const file = await open(path, 'r')
  try {
    const start = await startOf(file, path, size)
    return await scanOpened(new ShardScanner(file, path, size, start > 0), start, path)
  } finally {
    await file.close()
  }
}

async function startOf(file: FileHandle, path: string, size: number): Promise<number> {
  const head = await readExactly(path, file, 0, Math.min(64, size))
  if (!head || size === 0) {
    const hint = 'the download was interrupted; fetch the shard again, or pass skipBrokenShards'
    throw new Mismatch({ where: path, expected: 'an Arrow shard', got: 'a file of 0 bytes', hint })
  }
  refuseFailedDownload(head, path, 'an Arrow shard')
  return head.toString('latin1', 0, 6) === 'ARROW1' ? 8 : 0 // the file format holds the same messages after its magic
}

async function scanOpened(scanner: ShardScanner, start: number, path: string): Promise<ShardIndex> {
  const index: ShardIndex = { schemaOffset: 0, schemaLength: 0, batches: [], dictionaries: [], rows: 0 }
  const checks = new SchemaChecks(path)
  let at = start
  for (let frame = await scanner.frame(at); frame; frame = await scanner.frame(at)) {
    addFrame(index, frame, checks, path)
    at = frame.end
  }
  if (index.schemaLength === 0) throw scanner.truncated(start, 'the schema message')
  await scanner.checkFooter(index)
  return index
}

function addFrame(index: ShardIndex, frame: Frame, checks: SchemaChecks, path: string): void {
  const { message, metaOffset, metaLength, bodyOffset } = frame
  const got = `message type ${message.headerType}`
  const first = index.schemaLength === 0
  if (first !== message.isSchema()) {
    const expected = first ? 'a schema message first' : 'record batches after the schema'
    throw new Mismatch({ where: path, field: `byte ${metaOffset}`, expected, got })
  }
  const place = { metaOffset, metaLength, bodyOffset, bodyLength: message.bodyLength }
  if (message.isSchema()) {
    index.schemaOffset = metaOffset
    index.schemaLength = metaLength
    checks.schema(message, metaOffset)
  } else if (message.isRecordBatch()) {
    const { length: rows } = checks.batch(message, place)
    index.batches.push({ ...place, rows })
    index.rows += rows
  } else if (message.isDictionaryBatch()) {
    checks.dictionary(message, place)
    index.dictionaries.push(place)
  } else {
    throw new Mismatch({ where: path, field: `byte ${metaOffset}`, expected: 'a record batch or a dictionary', got })
  }
}

interface DictionaryHeader {
  id: number
  isDelta: boolean
  data: BatchHeader
}

/** Decodes and checks the messages of a shard against its schema. */
export class SchemaChecks {
  readonly #path: string
  #layout: Layout | null = null

  constructor(path: string) {
    this.#path = path
  }

  get columns(): Column[] {
    return this.#layout?.columns ?? []
  }

  schema(message: Message, at: number): Schema {
    const schema = guarded(this.#path, `schema at byte ${at}`, () => message.header() as unknown as Schema)
    this.#layout = layout(schema.fields, this.#path)
    return schema
  }

  batch(message: Message, place: MessagePlace): BatchHeader {
    const header = this.#header<BatchHeader>(message, place)
    if (header.compression) throw compressed(this.#path, place.metaOffset)
    new BatchChecker(header, place.bodyLength, this.#path, place.metaOffset).check(this.#layout!)
    return header
  }

  dictionary(message: Message, place: MessagePlace): DictionaryHeader {
    const header = this.#header<DictionaryHeader>(message, place)
    if (header.data.compression) throw compressed(this.#path, place.metaOffset)
    const type = dictionaryType(this.columns, header.id)
    if (!type) {
      const field = `dictionary batch at byte ${place.metaOffset}`
      throw new Mismatch({ where: this.#path, field, expected: 'a dictionary of the schema', got: `id ${header.id}` })
    }
    const expected = dictionaryLayout(type, this.#path)
    new BatchChecker(header.data, place.bodyLength, this.#path, place.metaOffset).check(expected)
    return header
  }

  #header<T>(message: Message, { metaOffset }: MessagePlace): T {
    return guarded(this.#path, `message at byte ${metaOffset}`, () => message.header() as unknown as T)
  }
}

/** Type of the values of a dictionary that a column, at any depth, refers to. */
function dictionaryType(columns: readonly Column[], id: number): DataType | null {
  for (const column of columns) {
    if (column.dictionaryId === id) return (column.type as unknown as { dictionary: DataType }).dictionary
    const inside = dictionaryType(column.children, id)
    if (inside) return inside
  }
  return null
}

/** Errors of the decoder mean a damaged file. */
function guarded<T>(where: string, field: string, decode: () => T): T {
  return expecting({ where, field, expected: 'Arrow metadata', hint: damagedHint }, decode)
}

/** Decodes a message after checking that its offsets are inside its bytes. Its header is not checked against the schema yet. */
export function decodeMessage(bytes: Uint8Array, path: string, at: number): Message {
  checkMessage(bytes, path, at)
  const message = guarded(path, `message at byte ${at}`, () => Message.decode(bytes))
  if (message.version >= 3) return message // metadata version V4, of Arrow 0.8 (2017)
  const got = `version V${message.version + 1}`
  throw new Mismatch({ where: path, field: `message at byte ${at}`, expected: 'metadata version V4 or V5', got })
}

function compressed(path: string, at: number): Mismatch {
  return new Mismatch({
    where: path,
    field: `record batch at byte ${at}`,
    expected: 'uncompressed buffers, as Hugging Face datasets writes them',
    got: 'a compressed body (LZ4 or ZSTD)',
    hint: 'write it again without compression: rows inside compressed buffers cannot be reached alone',
  })
}
