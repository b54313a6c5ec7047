import { statSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { Message, type Schema } from 'apache-arrow'
import { Mismatch } from '../../core/index.ts'

/** Where a record batch lies in its shard; the body is read row by row, never whole. */
export interface BatchEntry {
  metaOffset: number
  metaLength: number
  bodyOffset: number
  rows: number
}

export interface ShardIndex {
  /** The schema message as it is in the file. */
  schemaOffset: number
  schemaLength: number
  batches: BatchEntry[]
  dictionaries: Omit<BatchEntry, 'rows'>[]
  rows: number
}

const continuation = 0xffffffff
const maxMetadata = 256 * 1024 * 1024

async function readExactly(file: FileHandle, offset: number, length: number): Promise<Buffer | null> {
  const bytes = Buffer.allocUnsafe(length)
  let at = 0
  while (at < length) {
    const { bytesRead } = await file.read(bytes, at, length - at, offset + at)
    if (bytesRead === 0) return null
    at += bytesRead
  }
  return bytes
}

interface Frame {
  message: Message
  metaOffset: number
  metaLength: number
  bodyOffset: number
  end: number
}

class ShardScanner {
  readonly #file: FileHandle
  readonly #path: string
  readonly #size: number

  constructor(file: FileHandle, path: string, size: number) {
    this.#file = file
    this.#path = path
    this.#size = size
  }

  /** The message at an offset; null at the end of the stream. */
  async frame(at: number, previousEnd: number): Promise<Frame | null> {
    if (at === this.#size) return null
    const head = await readExactly(this.#file, at, Math.min(8, this.#size - at))
    if (!head || head.length < 4) throw this.truncated(previousEnd, 'a message length')
    const marked = head.readUInt32LE(0) === continuation // absent before Arrow 0.15
    if (marked && head.length < 8) throw this.truncated(previousEnd, 'a message length')
    const metaLength = head.readInt32LE(marked ? 4 : 0)
    if (metaLength === 0) return null
    const metaOffset = at + (marked ? 8 : 4)
    if (metaLength < 0 || metaLength > maxMetadata) throw this.#notArrow(at, metaLength)
    if (metaOffset + metaLength > this.#size) throw this.truncated(previousEnd, 'the metadata of a message')
    const message = this.#decode((await readExactly(this.#file, metaOffset, metaLength))!, at)
    const bodyOffset = metaOffset + metaLength
    const end = bodyOffset + message.bodyLength
    if (end > this.#size) throw this.truncated(previousEnd, `the body of a message (${message.bodyLength} bytes)`)
    return { message, metaOffset, metaLength, bodyOffset, end }
  }

  #decode(bytes: Buffer, at: number): Message {
    try {
      return Message.decode(bytes)
    } catch (error) {
      throw new Mismatch(
        { where: this.#path, field: `message at byte ${at}`, expected: 'Arrow metadata', got: error },
        { cause: error },
      )
    }
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
    return new Mismatch({
      where: this.#path,
      field: `byte ${at}`,
      expected: 'an Arrow message',
      got: `a metadata length of ${length}`,
      hint: 'this is not an Arrow IPC stream or file',
    })
  }
}

/** One pass over message headers only: two small reads a message, bodies are skipped over. */
export async function scanShard(path: string): Promise<ShardIndex> {
  const size = statSync(path).size
  const file = await open(path, 'r')
  try {
    return await scanOpened(new ShardScanner(file, path, size), await startOf(file, path, size), path)
  } finally {
    await file.close()
  }
}

async function startOf(file: FileHandle, path: string, size: number): Promise<number> {
  const head = await readExactly(file, 0, Math.min(64, size))
  if (!head || size === 0) {
    const hint = 'the download was interrupted; fetch the shard again, or pass skipBrokenShards'
    throw new Mismatch({ where: path, expected: 'an Arrow shard', got: 'a file of 0 bytes', hint })
  }
  if (head.toString('latin1').startsWith('version https://git-lfs')) {
    const hint = 'run `git lfs pull` in that folder, or download the file itself'
    throw new Mismatch({ where: path, expected: 'an Arrow shard', got: 'a Git LFS pointer file', hint })
  }
  return head.toString('latin1', 0, 6) === 'ARROW1' ? 8 : 0 // the file format holds the same messages after its magic
}

async function scanOpened(scanner: ShardScanner, start: number, path: string): Promise<ShardIndex> {
  const index: ShardIndex = { schemaOffset: 0, schemaLength: 0, batches: [], dictionaries: [], rows: 0 }
  let at = start
  for (let frame = await scanner.frame(at, at); frame; frame = await scanner.frame(at, at)) {
    addFrame(index, frame, path)
    at = frame.end
  }
  if (index.schemaLength === 0) throw scanner.truncated(start, 'the schema message')
  return index
}

function addFrame(index: ShardIndex, frame: Frame, path: string): void {
  const { message, metaOffset, metaLength, bodyOffset } = frame
  const first = index.schemaLength === 0
  if (first !== message.isSchema()) {
    const expected = first ? 'a schema message first' : 'record batches after the schema'
    throw new Mismatch({
      where: path,
      field: `byte ${metaOffset}`,
      expected,
      got: `message type ${message.headerType}`,
    })
  }
  if (message.isSchema()) {
    index.schemaOffset = metaOffset
    index.schemaLength = metaLength
  } else if (message.isRecordBatch()) {
    const header = message.header()
    if (header.compression) throw compressed(path, metaOffset)
    index.batches.push({ metaOffset, metaLength, bodyOffset, rows: header.length })
    index.rows += header.length
  } else if (message.isDictionaryBatch()) {
    index.dictionaries.push({ metaOffset, metaLength, bodyOffset })
  }
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

export function decodeSchema(bytes: Uint8Array): Schema {
  const message = Message.decode(bytes)
  if (!message.isSchema()) throw new Error('broken invariant: a schema message was indexed as one')
  return message.header()
}
