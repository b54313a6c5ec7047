// SentencePiece's normaliser: longest-match replacement by a precompiled table (nmt_nfkc and others; none for identity), then the
// rules for blanks. It works on UTF-8 bytes, as the table does.
import { Mismatch } from '../core/index.ts'
import { joinBytes } from './byte-level.ts'
import type { NormalizerSettings } from './sentencepiece-model.ts'
import { SymbolTrie } from './sentencepiece-symbols.ts'

/** U+2581, which stands for a blank inside the model. */
export const blankSymbol = '\u2581'

const utf8 = new TextEncoder()
const plainUtf8 = new TextDecoder('utf-8', { ignoreBOM: true })
const blankBytes = utf8.encode(blankSymbol)
const space = 0x20
/** Prefixes the library looks at; the builder never makes more. */
const maxPrefixes = 32
/** No rule of Unicode makes a longer text; a damaged table could make a megabyte of every letter. */
const longestReplacement = 4096

export class Normalizer {
  readonly #settings: NormalizerSettings
  readonly #charsmap: Charsmap | null
  readonly #symbols = new SymbolTrie()
  readonly #suffix: boolean

  /** `symbols`: user-defined pieces, which no rule touches. */
  constructor(settings: NormalizerSettings, symbols: readonly string[], whitespaceAsSuffix: boolean, where: string) {
    this.#settings = settings
    this.#charsmap = settings.charsmap.length > 0 ? new Charsmap(settings.charsmap, where) : null
    for (const symbol of symbols) this.#symbols.add(utf8.encode(symbol), 0)
    this.#suffix = whitespaceAsSuffix
  }

  normalize(text: string): string {
    const input = utf8.encode(text)
    const { addDummyPrefix, removeExtraWhitespaces } = this.#settings
    const blank = this.#settings.escapeWhitespaces ? blankBytes : Uint8Array.of(space)
    let at = removeExtraWhitespaces ? this.#afterBlanks(input) : 0
    if (at >= input.length) return ''
    const parts: Uint8Array[] = []
    if (addDummyPrefix && !this.#suffix) parts.push(blank)
    for (let afterBlank = removeExtraWhitespaces; at < input.length; ) {
      const { text: replaced, length } = this.#prefix(input, at)
      let start = 0
      while (afterBlank && replaced[start] === space) start++
      const kept = replaced.subarray(start)
      if (kept.length > 0) {
        parts.push(escaped(kept, blank))
        afterBlank = removeExtraWhitespaces && kept.at(-1) === space
      }
      at += length
    }
    return this.#finish(joinBytes(parts), blank)
  }

  #finish(bytes: Uint8Array, blank: Uint8Array): string {
    let end = bytes.length
    if (this.#settings.removeExtraWhitespaces) while (endsWith(bytes, end, blank)) end -= blank.length
    const text = plainUtf8.decode(bytes.subarray(0, end))
    return this.#settings.addDummyPrefix && this.#suffix ? text + plainUtf8.decode(blank) : text
  }

  #afterBlanks(input: Uint8Array): number {
    let at = 0
    while (at < input.length) {
      const { text, length } = this.#prefix(input, at)
      if (text.length !== 1 || text[0] !== space) break
      at += length
    }
    return at
  }

  /** What the first characters from `at` on become, and how many bytes they are. */
  #prefix(input: Uint8Array, at: number): { text: Uint8Array; length: number } {
    const symbol = this.#symbols.longest(input, at)
    if (symbol > 0) return { text: input.subarray(at, at + symbol), length: symbol }
    const rule = this.#charsmap?.longest(input, at)
    if (rule) return rule
    const length = characterBytes(input[at]!)
    return { text: input.subarray(at, at + length), length }
  }
}

function escaped(bytes: Uint8Array, blank: Uint8Array): Uint8Array {
  if (!bytes.includes(space) || blank.length === 1) return bytes
  return joinBytes(Array.from(bytes, (byte) => (byte === space ? blank : Uint8Array.of(byte))))
}

function endsWith(bytes: Uint8Array, end: number, tail: Uint8Array): boolean {
  return end >= tail.length && tail.every((byte, i) => bytes[end - tail.length + i] === byte)
}

/** From the lead byte; the input comes from TextEncoder, so it is well-formed. */
function characterBytes(lead: number): number {
  if (lead < 0x80) return 1
  if (lead < 0xe0) return 2
  return lead < 0xf0 ? 3 : 4
}

/** Double-array trie (Darts-clone layout) whose values are offsets into NUL-terminated replacement texts. */
class Charsmap {
  readonly #units: Uint32Array
  readonly #texts: Uint8Array
  readonly #where: string

  constructor(blob: Uint8Array, where: string) {
    this.#where = where
    const view = new DataView(blob.buffer, blob.byteOffset, blob.byteLength)
    const size = blob.length > 4 ? view.getUint32(0, true) : 0
    if (size === 0 || size % 4 !== 0 || size >= blob.length - 4) {
      throw this.#broken('a table size that is a multiple of 4 and leaves room for texts', size)
    }
    this.#units = Uint32Array.from({ length: size / 4 }, (_, i) => view.getUint32(4 + 4 * i, true))
    this.#texts = blob.subarray(4 + size)
  }

  /** The longest rule that matches at `at`. */
  longest(input: Uint8Array, at: number): { text: Uint8Array; length: number } | null {
    let best: { value: number; length: number } | null = null
    let node = this.#offset(this.#unit(0))
    let prefixes = 0
    for (let i = at; i < input.length && prefixes < maxPrefixes; i++) {
      node ^= input[i]!
      const unit = this.#unit(node)
      if ((unit & 0x800000ff) >>> 0 !== input[i]!) break
      node ^= this.#offset(unit)
      if ((unit & 0x100) === 0) continue
      best = { value: this.#unit(node) & 0x7fffffff, length: i + 1 - at }
      prefixes++
    }
    return best && { text: this.#textAt(best.value), length: best.length }
  }

  #offset(unit: number): number {
    return ((unit >>> 10) << ((unit & 0x200) >>> 6)) >>> 0
  }

  #unit(index: number): number {
    const unit = this.#units[index >>> 0]
    if (unit === undefined) throw this.#broken(`an index below ${this.#units.length}`, index >>> 0)
    return unit
  }

  #textAt(offset: number): Uint8Array {
    const end = this.#texts.indexOf(0, offset)
    if (offset < this.#texts.length && end >= 0 && end - offset <= longestReplacement)
      return this.#texts.subarray(offset, end)
    throw this.#broken(`a replacement text of at most ${longestReplacement} bytes`, `offset ${offset}`)
  }

  #broken(expected: string, got: unknown): Mismatch {
    return new Mismatch({ where: this.#where, field: 'normalizer_spec.precompiled_charsmap', expected, got })
  }
}
