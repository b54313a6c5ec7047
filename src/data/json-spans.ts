import { createReadStream } from 'node:fs'
import { Mismatch } from '../core/index.ts'

/** One element of a JSON container: where its text lies in the file, with its key when the container is an object. */
interface JsonSpan {
  key: string | null
  offset: number
  length: number
}

/** Bytes of JSON's grammar. */
const [quote, comma, colon, backslash] = Buffer.from('",:\\') as unknown as [number, number, number, number]
const [openList, closeList, openObject, closeObject] = Buffer.from('[]{}')

/** Finds where the elements of one container begin and end; knows brackets, strings and keys, not values. */
class SpanScanner {
  readonly #member: string | null
  /** Depth of the container whose elements are wanted. */
  readonly #target: number
  #depth = 0
  #inString = false
  #escaped = false
  #key: number[] | null = null
  readonly #keys: (string | null)[] = [null, null, null]
  readonly #isObject: boolean[] = []
  #start = -1
  #end = -1

  constructor(member: string | null) {
    this.#member = member
    this.#target = member === null ? 1 : 2
  }

  get complete(): boolean {
    return this.#depth === 0 && !this.#inString
  }

  /** An element that ended at this byte. */
  push(byte: number, at: number): JsonSpan | null {
    if (this.#inString) return this.#inText(byte, at)
    if (byte <= 32) return null
    if (byte === quote) return this.#openText(at)
    if (byte === openList || byte === openObject) return this.#open(byte === openObject, at)
    if (byte === closeList || byte === closeObject) return this.#close(at)
    if (byte === comma) return this.#separate()
    if (byte !== colon) this.#mark(at)
    return null
  }

  #wanted(): boolean {
    return this.#depth >= this.#target && (this.#member === null || this.#keys[1] === this.#member)
  }

  #mark(at: number): void {
    if (!this.#wanted()) return
    if (this.#start < 0 && this.#depth === this.#target) this.#start = at
    this.#end = at + 1
  }

  #inText(byte: number, at: number): null {
    this.#key?.push(byte)
    if (this.#escaped) this.#escaped = false
    else if (byte === backslash) this.#escaped = true
    else if (byte === quote) {
      this.#inString = false
      if (this.#key) this.#keys[this.#depth] = JSON.parse(Buffer.from(this.#key).toString('utf8')) as string
      else this.#mark(at)
      this.#key = null
    }
    return null
  }

  #openText(at: number): null {
    this.#inString = true
    const isKey =
      this.#depth <= this.#target && this.#isObject[this.#depth] === true && this.#keys[this.#depth] === null
    if (isKey) this.#key = [quote]
    else this.#mark(at)
    return null
  }

  #open(isObject: boolean, at: number): null {
    this.#mark(at)
    this.#depth++
    this.#isObject[this.#depth] = isObject
    if (this.#depth <= this.#target) this.#keys[this.#depth] = null
    return null
  }

  #close(at: number): JsonSpan | null {
    const span = this.#finish()
    this.#depth--
    if (this.#depth < 0) throw new RangeError('a closing bracket without an opening one')
    this.#mark(at)
    return span
  }

  #separate(): JsonSpan | null {
    const span = this.#finish()
    if (this.#depth <= this.#target && this.#isObject[this.#depth]) this.#keys[this.#depth] = null
    return span
  }

  #finish(): JsonSpan | null {
    if (this.#depth !== this.#target || this.#start < 0) return null
    const span = { key: this.#keys[this.#depth] ?? null, offset: this.#start, length: this.#end - this.#start }
    this.#start = -1
    return span
  }
}

/**
 * The elements of the outermost array or object of a file, or of one member of it. The file is never loaded as a whole: annotation
 * files of gigabytes are longer than a JavaScript string may be.
 */
export async function* jsonSpans(file: string, member: string | null = null): AsyncGenerator<JsonSpan> {
  const scanner = new SpanScanner(member)
  let at = 0
  try {
    for await (const piece of createReadStream(file, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
      for (let i = 0; i < piece.length; i++) {
        const span = scanner.push(piece[i]!, at++)
        if (span) yield span
      }
    }
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error
    throw new Mismatch({ where: file, field: `byte ${at}`, expected: 'JSON', got: error }, { cause: error })
  }
  if (scanner.complete) return
  const [expected, got, hint] = ['balanced JSON', 'an open bracket or text', 'the file is truncated']
  throw new Mismatch({ where: file, field: `byte ${at}`, expected, got, hint })
}
