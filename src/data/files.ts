import { type FileHandle, open } from 'node:fs/promises'
import { Mismatch } from '../core/index.ts'

const blockSize = 32 * 1024
const maxBlocks = 256 // 8 MiB for a whole pool
const maxOpen = 64

interface Opened {
  handle: Promise<FileHandle>
  /** Reads under way; a file is closed only when idle. */
  users: number
}

/**
 * Positional reads from many files with few of them open. Small reads go through a block cache, because the offsets of
 * neighbouring rows share blocks; image bytes are read directly and belong to the caller.
 */
export class FilePool {
  readonly #open = new Map<string, Opened>()
  readonly #blocks = new Map<string, Promise<Buffer>>()

  async read(path: string, offset: number, length: number): Promise<Buffer> {
    if (length === 0) return Buffer.alloc(0)
    const first = Math.floor(offset / blockSize)
    const last = Math.floor((offset + length - 1) / blockSize)
    if (last - first > 1) return await this.#direct(path, offset, length)
    const blocks =
      first === last
        ? [await this.#block(path, first)]
        : [await this.#block(path, first), await this.#block(path, last)]
    const joined = blocks.length === 1 ? blocks[0]! : Buffer.concat(blocks)
    const from = offset - first * blockSize
    if (from + length > joined.length) throw tooShort(path, offset, length, joined.length - from)
    return Buffer.from(joined.subarray(from, from + length))
  }

  async close(): Promise<void> {
    const opened = [...this.#open.values()]
    this.#open.clear()
    this.#blocks.clear()
    for (const entry of opened) await (await entry.handle).close()
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
    if (bytes.length < length) throw tooShort(path, offset, length, bytes.length)
    return bytes
  }

  /** As many of the bytes as the file has. Not from Node's shared pool: the buffer may be moved to a worker. */
  async #upTo(path: string, offset: number, length: number): Promise<Buffer> {
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
      if (this.#open.get(path) === file) this.#open.delete(path)
      throw error
    } finally {
      file.users--
      await this.#closeIdle()
    }
  }

  #lookup(path: string): Opened {
    const file = this.#open.get(path) ?? { handle: open(path, 'r'), users: 0 }
    this.#open.delete(path) // to the end: least recently used first
    this.#open.set(path, file)
    return file
  }

  async #closeIdle(): Promise<void> {
    if (this.#open.size <= maxOpen) return
    for (const [path, file] of this.#open) {
      if (file.users > 0) continue
      this.#open.delete(path)
      await (await file.handle).close()
      return
    }
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
