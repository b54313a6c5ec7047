import type { Stats } from 'node:fs'
import { type FileHandle, open, readFile, stat } from 'node:fs/promises'
import { assert, Mismatch, regularFile, unreadable } from '../core/index.ts'

const blockSize = 32 * 1024
const maxBlocks = 256 // 8 MiB for a whole pool
const maxOpen = 64
const recheckMs = 1000

interface Opened {
  handle: Promise<FileHandle>
  /** Reads under way; a file is closed only when idle. */
  users: number
}

/** A file as it was when its index was read. */
interface Known {
  size: number
  mtimeMs: number
  inode: number
  checkedAt: number
}

/** A file that changed after its index was built. It always ends the run; it never counts as a bad record. */
export class ChangedFile extends Mismatch {}

export const damagedHint = 'the file is damaged; fetch it again, or pass skipBrokenShards'

/**
 * Positional reads from many files with few of them open. Small reads use a block cache, because the offsets of
 * neighbouring rows share blocks; image bytes are read directly and belong to the caller.
 */
export class FilePool {
  readonly #open = new Map<string, Opened>()
  readonly #blocks = new Map<string, Promise<Buffer>>()
  readonly #known = new Map<string, Known>()
  readonly #recheckMs: number
  #closed = false

  /** `recheckMs`: time between two checks that a file has not changed. */
  constructor(options: { recheckMs?: number } = {}) {
    this.#recheckMs = options.recheckMs ?? recheckMs
  }

  /** Stores size and time of a file; a later read fails if they have changed. */
  watch(path: string): void {
    if (!this.#known.has(path)) this.#known.set(path, known(regularFile(path)))
  }

  async read(path: string, offset: number, length: number): Promise<Buffer> {
    if (length === 0) return Buffer.alloc(0)
    const { size } = await this.#unchanged(path)
    if (!(offset >= 0 && length > 0 && offset + length <= size)) throw tooShort(path, offset, length, size - offset)
    const first = Math.floor(offset / blockSize)
    const last = Math.floor((offset + length - 1) / blockSize)
    if (last - first > 1) return await this.#direct(path, offset, length)
    const head = await this.#block(path, first)
    const joined = first === last ? head : Buffer.concat([head, await this.#block(path, last)])
    const from = offset - first * blockSize
    if (from + length > joined.length) throw await this.#cut(path, offset, length, joined.length - from)
    return Buffer.from(joined.subarray(from, from + length))
  }

  /** A file that is being read is closed after its last read. */
  async close(): Promise<void> {
    this.#closed = true
    this.#blocks.clear()
    for (const [path, file] of this.#open) if (file.users === 0) await this.#closeFile(path, file)
  }

  async #closeFile(path: string, file: Opened): Promise<void> {
    this.#open.delete(path)
    await (await file.handle.catch(() => null))?.close()
  }

  async #block(path: string, index: number): Promise<Buffer> {
    const key = `${index}:${path}`
    let block = this.#blocks.get(key)
    if (block) this.#blocks.delete(key)
    else block = this.#upTo(path, index * blockSize, blockSize)
    this.#blocks.set(key, block)
    if (this.#blocks.size > maxBlocks) this.#blocks.delete(this.#blocks.keys().next().value!)
    try {
      return await block
    } catch (error) {
      this.#blocks.delete(key)
      throw error
    }
  }

  async #direct(path: string, offset: number, length: number): Promise<Buffer> {
    const bytes = await this.#upTo(path, offset, length)
    if (bytes.length < length) throw await this.#cut(path, offset, length, bytes.length)
    return bytes
  }

  /** Size and time of the file when first seen; throws if they have changed. */
  async #unchanged(path: string, now = performance.now()): Promise<Known> {
    this.watch(path)
    const before = this.#known.get(path)!
    if (now - before.checkedAt < this.#recheckMs) return before
    before.checkedAt = now
    const found = await stat(path).catch(() => null)
    const after = found && known(found)
    if (after && after.size === before.size && after.mtimeMs === before.mtimeMs && after.inode === before.inode)
      return before
    throw changed(path, before, after)
  }

  /** The error for a read with too few bytes: the file changed, or it is too short. */
  async #cut(path: string, offset: number, length: number, got: number): Promise<Mismatch> {
    const error = await this.#unchanged(path, Number.POSITIVE_INFINITY).catch((e: Mismatch) => e)
    return error instanceof Mismatch ? error : tooShort(path, offset, length, got)
  }

  /** Up to `length` bytes. Not from Node's shared pool: the buffer may be moved to a worker. */
  async #upTo(path: string, offset: number, length: number): Promise<Buffer> {
    assert(!this.#closed, 'a closed pool reads nothing')
    const file = this.#lookup(path)
    file.users++
    try {
      const handle = await file.handle
      const bytes = Buffer.allocUnsafeSlow(length)
      let at = 0
      while (at < length) {
        const { bytesRead } = await handle.read(bytes, at, length - at, offset + at)
        if (bytesRead === 0) break
        at += bytesRead
      }
      return at === length ? bytes : bytes.subarray(0, at)
    } catch (error) {
      throw unreadable(path, offset, length, error)
    } finally {
      file.users--
      if (this.#closed && file.users === 0) await this.#closeFile(path, file)
      else await this.#closeIdle()
    }
  }

  #lookup(path: string): Opened {
    const file = this.#open.get(path) ?? { handle: open(path, 'r'), users: 0 }
    file.handle.catch(() => this.#open.delete(path)) // the next read tries again
    this.#open.delete(path) // to the end: least recently used first
    this.#open.set(path, file)
    return file
  }

  async #closeIdle(): Promise<void> {
    if (this.#open.size <= maxOpen) return
    const idle = [...this.#open].find(([, file]) => file.users === 0)
    if (idle) await this.#closeFile(...idle)
  }
}

function tooShort(path: string, offset: number, length: number, got: number): Mismatch {
  return new Mismatch({
    where: path,
    field: `bytes at ${offset}`,
    expected: `${length} bytes`,
    got: `${Math.max(0, got)} before the end of the file`,
    hint: 'the file is shorter than its index says: truncated, or replaced while open',
  })
}

function known({ size, mtimeMs, ino }: Stats): Known {
  return { size, mtimeMs, inode: ino, checkedAt: performance.now() }
}

function changed(path: string, before: Known, after: Known | null): ChangedFile {
  const show = ({ size, mtimeMs }: Known) => `${size} bytes of ${new Date(mtimeMs).toISOString()}`
  return new ChangedFile({
    where: path,
    expected: `the file that the run began with (${show(before)})`,
    got: after ? `another one (${show(after)})` : 'no file',
    hint: 'data must not change during a run: records would be read at the wrong place; start again, or resume with the old file',
  })
}

const maxStored = 512 * 1024 * 1024

/** A whole small file: an image or a mask that a record names. */
export async function readStored(path: string): Promise<Buffer> {
  const { size } = regularFile(path)
  if (size > maxStored)
    throw new Mismatch({ where: path, expected: `a file of at most ${maxStored} bytes`, got: `${size} bytes` })
  try {
    return await readFile(path)
  } catch (error) {
    throw unreadable(path, 0, size, error)
  }
}
