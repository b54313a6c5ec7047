import { fstatSync, readSync, type Stats, statSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { firstIndex, requireBelow, withOpen } from '../core/index.ts'
import { maxLineBytes } from './json-lines.ts'

const newline = 10
const firstPiece = 1 << 20
/** Distance of the places at which a file that changed is compared. */
const markDistance = 1 << 20
const checkLength = 64

/** Bytes in front of an offset at which a line ends: as long as they are there, what was read before still holds. */
interface Mark {
  end: number
  check: Buffer
}

export interface LineSink {
  /** Lines that could not be read. */
  readonly bad: number
  /** One whole line without its newline; the bytes are valid during the call alone. */
  line(bytes: Buffer, start: number, end: number): void
  /** Everything from this offset on is not in the file any more. */
  cut(offset: number): void
}

/**
 * Reads what is new in a file of lines. A torn last line waits for its rest. A file that was cut (a resumed run) or
 * replaced is read again from the last place where it still is what it was; a copy of the file counts as the file.
 */
export class LineFollower {
  readonly path: string
  readonly sink: LineSink
  /** Whether the file ends with bytes without a newline. */
  torn = false
  #offset = 0
  /** Inside a line that is too long. */
  #isPassing = false
  #marks: Mark[] = []
  #seen: Pick<Stats, 'size' | 'mtimeMs' | 'ino'> | undefined
  #piece = Buffer.allocUnsafe(0)

  constructor(path: string, sink: LineSink) {
    this.path = path
    this.sink = sink
  }

  /** Bytes read so far, up to the end of a line. */
  get offset(): number {
    return this.#offset
  }

  /**
   * Reads until the end or until `budget` bytes are through; true: there is more to read. Throws if the file cannot be read now, is
   * not a regular file or a link leads out of its folder; the next call tries again.
   */
  read(budget = Number.POSITIVE_INFINITY): boolean {
    const found = statSync(this.path, { throwIfNoEntry: false })
    if (!found?.isFile()) {
      if (this.#offset > 0) this.#cutTo(0)
      this.#seen = undefined
      this.torn = false
      if (!found) return false
    } else if (this.#isSeen(found)) return false
    return withOpen(requireBelow(dirname(this.path), basename(this.path)), (fd) => this.#readFrom(fd, budget))
  }

  #isSeen({ size, mtimeMs, ino }: Stats): boolean {
    const seen = this.#seen
    return seen !== undefined && seen.size === size && seen.mtimeMs === mtimeMs && seen.ino === ino
  }

  #readFrom(fd: number, budget: number): boolean {
    const found = fstatSync(fd)
    this.#compare(fd, found.size)
    if (this.#piece.length === 0) this.#piece = Buffer.allocUnsafe(firstPiece)
    for (let used = 0; this.#offset < found.size; ) {
      if (used >= budget) return true
      const n = readSync(fd, this.#piece, 0, Math.min(this.#piece.length, found.size - this.#offset), this.#offset)
      if (n === 0) break
      used += n
      const through = this.#lines(n)
      if (through === 0 && !this.#widen(n, found.size)) break
    }
    this.torn = this.#offset < found.size
    this.#seen = found
    if (this.#piece.length > firstPiece) this.#piece = Buffer.allocUnsafe(firstPiece)
    return false
  }

  /** The lines of the first `n` bytes of the piece; returns how many bytes they took. */
  #lines(n: number): number {
    let from = 0
    for (let to = this.#piece.indexOf(newline); to >= 0 && to < n; to = this.#piece.indexOf(newline, from)) {
      const line = this.#piece.subarray(this.#isPassing ? to : from, to) // of a line that is too long nothing: the sink counts it
      this.#isPassing = false
      this.sink.line(line, this.#offset + from, this.#offset + to + 1)
      from = to + 1
    }
    if (from > 0) this.#mark(this.#offset + from, this.#piece.subarray(Math.max(0, from - checkLength), from))
    this.#offset += from
    return from
  }

  /** The piece had no newline: a larger one, or past a line beyond all measure. False: the rest is not there yet. */
  #widen(n: number, size: number): boolean {
    if (this.#offset + n >= size) return false
    if (this.#piece.length < maxLineBytes) this.#piece = Buffer.allocUnsafe(this.#piece.length * 2)
    else {
      this.#offset += n
      this.#isPassing = true
    }
    return true
  }

  /** The newest mark moves along; every `markDistance` one mark is kept. */
  #mark(end: number, bytes: Buffer): void {
    const mark = { end, check: Buffer.from(bytes) }
    const before = this.#marks.at(-2)
    if (this.#marks.length > 0 && end - (before?.end ?? 0) < markDistance) this.#marks.pop()
    this.#marks.push(mark)
  }

  #compare(fd: number, size: number): void {
    const holds = ({ end, check }: Mark) => {
      if (end > size) return false
      const bytes = Buffer.alloc(check.length)
      readSync(fd, bytes, 0, bytes.length, end - check.length)
      return bytes.equals(check)
    }
    const last = this.#marks.at(-1)
    if (!last || holds(last)) return
    this.#marks.length = firstIndex(this.#marks.length, (i) => !holds(this.#marks[i]!))
    this.#cutTo(this.#marks.at(-1)?.end ?? 0)
  }

  #cutTo(offset: number): void {
    if (offset === 0) this.#marks = []
    this.#offset = offset
    this.#isPassing = false
    this.sink.cut(offset)
  }
}
