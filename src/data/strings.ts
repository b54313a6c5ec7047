import { Mismatch } from '../core/index.ts'

/** Text that is not UTF-8, found while reading a row. */
export class NotUtf8 extends Mismatch {}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Undecodable text is returned, not thrown: its row may be null there, and only its record is rejected. */
export function strictText(bytes: Uint8Array, where: string, field: string): string | NotUtf8 {
  try {
    return utf8.decode(bytes)
  } catch {
    const got = `bytes ${Buffer.from(bytes.subarray(0, 16)).toString('hex')}...`
    return new NotUtf8({ where, field, expected: 'UTF-8 text', got })
  }
}

/** Many short strings in two typed arrays: about their own bytes plus 8 each, instead of an object each. */
export class PackedStrings {
  readonly #bytes: Buffer
  readonly #ends: Float64Array

  constructor(values: readonly string[]) {
    this.#bytes = Buffer.from(values.join(''))
    this.#ends = new Float64Array(values.length)
    let end = 0
    values.forEach((value, i) => {
      end += Buffer.byteLength(value)
      this.#ends[i] = end
    })
  }

  get length(): number {
    return this.#ends.length
  }

  at(index: number): string {
    return this.#bytes.toString('utf8', index === 0 ? 0 : this.#ends[index - 1]!, this.#ends[index]!)
  }
}
