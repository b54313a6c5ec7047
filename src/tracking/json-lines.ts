import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  rmSync,
  statSync,
} from 'node:fs'
import { assert, diskTrouble, lackOfRoom, Mismatch, regularFile, tryJsonObject, writeAll } from '../core/index.ts'

const newline = 10
const pieceSize = 1 << 16
/** A line that is longer with its newline is damage: it is passed over in pieces, so that no file takes all memory. */
export const maxLineBytes = 64 << 20

/** Numbers JSON has no word for are written as strings, so that a NaN loss is seen and not read as "absent". */
export function encodeJson(value: unknown): string {
  return JSON.stringify(value, (_, v) => (typeof v === 'number' && !Number.isFinite(v) ? String(v) : v))
}

export const encodeLine = (value: unknown) => `${encodeJson(value)}\n`

/** Of lines that are encoded already these bytes themselves. */
export const lineBytes = (value: unknown): Uint8Array =>
  value instanceof Uint8Array ? value : Buffer.from(encodeLine(value))

/** The number that `encodeLine` wrote; undefined if it wrote none. */
export function decodeNumber(value: unknown): number | undefined {
  if (typeof value === 'number') return value
  if (value === 'NaN') return Number.NaN
  if (value === 'Infinity') return Number.POSITIVE_INFINITY
  return value === '-Infinity' ? Number.NEGATIVE_INFINITY : undefined
}

/** One line of a file: its value, or undefined if it is not a JSON object; `end` is the offset after its newline. */
export interface Line {
  value: Record<string, unknown> | undefined
  start: number
  end: number
  /** False for a last line that was cut before its newline. */
  whole: boolean
}

function* linesOf(fd: number): Generator<Line> {
  const piece = Buffer.allocUnsafe(pieceSize)
  let held: Buffer[] = []
  let start = 0
  const isShort = (end: number) => end - start < maxLineBytes
  let at = 0
  // By offset and size, never "until the end": a device file has no end.
  const size = fstatSync(fd).size
  while (at < size) {
    const n = readSync(fd, piece, 0, Math.min(pieceSize, size - at), at)
    if (n === 0) break
    let from = 0
    for (let to = piece.indexOf(newline); to >= 0 && to < n; to = piece.indexOf(newline, from)) {
      const value = isShort(at + to)
        ? tryJsonObject(Buffer.concat([...held, piece.subarray(from, to)]).toString())
        : undefined
      held = []
      from = to + 1
      yield { value, start, end: at + from, whole: true }
      start = at + from
    }
    at += n
    if (!isShort(at)) held = []
    else if (from < n) held.push(Buffer.from(piece.subarray(from, n)))
  }
  if (at > start) yield { value: undefined, start, end: at, whole: false }
}

/** The lines of a file in pieces: a samples file may be larger than any string. A missing file has no lines. */
export function* readLines(path: string): Generator<Line> {
  if (!existsSync(path)) return
  regularFile(path)
  const fd = openSync(path, 'r')
  try {
    yield* linesOf(fd)
  } finally {
    closeSync(fd)
  }
}

/** The same error with a clear message if the disk is full, else the error unchanged. */
export function noRoomError(error: unknown, path: string, bytes: number): unknown {
  const words = lackOfRoom(error)
  if (!words) return error
  return new Mismatch(
    {
      where: path,
      expected: `room for ${bytes} more bytes`,
      got: words,
      hint: 'free some space and resume the run; everything written before is whole',
    },
    { cause: error },
  )
}

/**
 * Append-only file of one JSON object a line. A line goes out in one write, so kill -9 leaves at most the last one torn;
 * opening cuts a torn tail off, and a write that fails half-way is taken back.
 */
export class JsonLines {
  readonly path: string
  /** Bytes of a torn tail that opening cut off; 0 for a clean file. */
  readonly dropped: number
  #fd: number
  #size: number

  constructor(path: string) {
    this.path = path
    this.#fd = openSync(path, existsSync(path) ? 'r+' : 'wx+')
    const before = fstatSync(this.#fd).size
    this.#size = endOfLastGoodLine(this.#fd)
    this.dropped = before - this.#size
    if (this.dropped > 0) ftruncateSync(this.#fd, this.#size)
  }

  /** Bytes written so far; what a checkpoint remembers. */
  get size(): number {
    return this.#size
  }

  append(...values: readonly unknown[]): void {
    this.appendBytes(values.map(lineBytes))
  }

  /** Lines that are encoded already, each with its newline. */
  appendBytes(lines: readonly Uint8Array[]): void {
    assert(this.#fd >= 0, `${this.path} is open`)
    const bytes = Buffer.concat(lines)
    try {
      writeAll(this.#fd, bytes, this.#size)
    } catch (error) {
      this.#takeBack()
      throw noRoomError(error, this.path, bytes.length)
    }
    this.#size += bytes.length
  }

  /** Where not even this works the next line is written over what is there. */
  #takeBack(): void {
    try {
      if (fstatSync(this.#fd).size > this.#size) ftruncateSync(this.#fd, this.#size)
    } catch (error) {
      if (!diskTrouble(error)) throw error
    }
  }

  /** Keeps the first `size` bytes; the file must have them and they must end with a line. */
  truncateTo(size: number): void {
    const last = Buffer.alloc(1)
    const whole = size === 0 || (size <= this.#size && readSync(this.#fd, last, 0, 1, size - 1) === 1)
    if (!whole || (size > 0 && last[0] !== newline)) {
      throw new Mismatch({
        where: this.path,
        field: 'length',
        expected: `a line that ends at byte ${size}`,
        got: `${this.#size} bytes`,
        hint: 'the file was changed after the checkpoint; resume into a new folder',
      })
    }
    ftruncateSync(this.#fd, size)
    this.#size = size
  }

  /** Cuts the file before the first line `isLater` says yes to. */
  truncateBefore(isLater: (value: Record<string, unknown>) => boolean): void {
    for (const line of linesOf(this.#fd)) {
      if (line.value === undefined || !isLater(line.value)) continue
      this.truncateTo(line.start)
      return
    }
  }

  sync(): void {
    fsyncSync(this.#fd)
  }

  /** 'here' while the path still names this file; 'gone' when it names nothing, 'other' when it names another file. */
  place(): 'here' | 'gone' | 'other' {
    const found = statSync(this.path, { throwIfNoEntry: false })
    if (!found) return 'gone'
    const own = fstatSync(this.#fd)
    return found.ino === own.ino && found.dev === own.dev ? 'here' : 'other'
  }

  /** Writes a file that was deleted under us back to its path: its bytes live as long as it is open. */
  putBack(): void {
    const fd = openSync(this.path, 'wx+')
    try {
      this.#copyTo(fd)
    } catch (error) {
      closeSync(fd)
      rmSync(this.path, { force: true })
      throw noRoomError(error, this.path, this.#size)
    }
    closeSync(this.#fd)
    this.#fd = fd
  }

  #copyTo(fd: number): void {
    const piece = Buffer.allocUnsafe(pieceSize)
    for (let at = 0; at < this.#size; ) {
      const n = readSync(this.#fd, piece, 0, Math.min(pieceSize, this.#size - at), at)
      if (n === 0) throw new Mismatch({ where: this.path, expected: `${this.#size} bytes`, got: at })
      writeAll(fd, piece.subarray(0, n), at)
      at += n
    }
  }

  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd)
    this.#fd = -1
  }
}

/**
 * Offset after the last line that parses, looked for from the end. A power loss may leave zeros or half pages there:
 * everything behind that line is torn.
 */
function endOfLastGoodLine(fd: number): number {
  let end = lastNewline(fd, fstatSync(fd).size) + 1
  while (end > 0) {
    const start = lastNewline(fd, end - 1) + 1
    if (end - 1 - start < maxLineBytes) {
      const bytes = Buffer.alloc(end - 1 - start)
      readSync(fd, bytes, 0, bytes.length, start)
      if (tryJsonObject(bytes.toString()) !== undefined) return end
    }
    end = start
  }
  return 0
}

/** Offset of the last newline before `end`, or -1. */
function lastNewline(fd: number, end: number): number {
  const piece = Buffer.allocUnsafe(pieceSize)
  while (end > 0) {
    const start = Math.max(0, end - pieceSize)
    const n = readSync(fd, piece, 0, end - start, start)
    const at = piece.subarray(0, n).lastIndexOf(newline)
    if (at >= 0) return start + at
    end = start
  }
  return -1
}
