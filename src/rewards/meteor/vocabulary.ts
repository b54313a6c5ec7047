import { porterStem } from './porter.ts'
import { wordNet } from './wordnet.ts'

/** Captions of one run use a few ten thousand words; a policy that writes noise must not fill the memory. */
const maxWords = 1 << 18
const maxChars = 1 << 24
const unknown = -1
const noSynonyms: ReadonlySet<number> = new Set()

/**
 * Numbers for words, with what METEOR asks about them worked out once per word. Equal numbers are equal strings.
 * Nothing is looked up in WordNet before a word reaches the synonym stage.
 */
export class Vocabulary {
  readonly #words: string[] = []
  #numChars = 0
  /** Open hash table of word numbers plus one; a power of two in size and at most half full. */
  #slots = new Int32Array(4096)
  /** Per word: hash, stem, WordNet key. */
  #hash = new Int32Array(1024)
  #stem = new Int32Array(1024).fill(unknown)
  #key = new Int32Array(1024).fill(unknown)
  readonly #synonyms: (ReadonlySet<number> | undefined)[] = []

  get size(): number {
    return this.#words.length
  }

  get full(): boolean {
    return this.#words.length >= maxWords || this.#numChars >= maxChars
  }

  /** The number of text[start, end). No string is created for a known word. */
  idOf(text: string, start: number, end: number): number {
    let hash = 0
    for (let i = start; i < end; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
    hash ^= hash >>> 13
    const mask = this.#slots.length - 1
    for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const id = this.#slots[slot]! - 1
      if (id < 0) return this.#add(text.slice(start, end), hash, slot)
      if (this.#hash[id] === hash && equalsRange(this.#words[id]!, text, start, end)) return id
    }
  }

  stemOf(id: number): number {
    const known = this.#stem[id]!
    if (known !== unknown) return known
    const stem = this.#idOfWord(porterStem(this.#words[id]!))
    this.#stem[id] = stem
    return stem
  }

  /** The number of a word in WordNet, or -2. */
  keyOf(id: number): number {
    const known = this.#key[id]!
    if (known !== unknown) return known
    const found = wordNet().idOf(this.#words[id]!)
    this.#key[id] = found < 0 ? -2 : found
    return this.#key[id]!
  }

  /** WordNet numbers of the synonyms of a word. */
  synonymsOf(id: number): ReadonlySet<number> {
    const known = this.#synonyms[id]
    if (known !== undefined) return known
    const found = wordNet().synonymIds(this.#words[id]!)
    this.#synonyms[id] = found.size === 0 ? noSynonyms : found
    return this.#synonyms[id]!
  }

  #idOfWord(word: string): number {
    return this.idOf(word, 0, word.length)
  }

  #add(word: string, hash: number, slot: number): number {
    const id = this.#words.length
    if (id === this.#hash.length) this.#grow()
    this.#words.push(ownCopy(word))
    this.#numChars += word.length
    this.#hash[id] = hash
    this.#slots[slot] = id + 1
    if (2 * (id + 1) > this.#slots.length) this.#rehash()
    return id
  }

  #rehash(): void {
    const slots = new Int32Array(2 * this.#slots.length)
    const mask = slots.length - 1
    for (let id = 0; id < this.#words.length; id++) {
      let slot = this.#hash[id]! & mask
      while (slots[slot] !== 0) slot = (slot + 1) & mask
      slots[slot] = id + 1
    }
    this.#slots = slots
  }

  #grow(): void {
    const wider = (old: Int32Array) => {
      const next = new Int32Array(2 * old.length).fill(unknown)
      next.set(old)
      return next
    }
    this.#hash = wider(this.#hash)
    this.#stem = wider(this.#stem)
    this.#key = wider(this.#key)
  }
}

function equalsRange(word: string, text: string, start: number, end: number): boolean {
  if (word.length !== end - start) return false
  for (let i = 0; i < word.length; i++) if (word.charCodeAt(i) !== text.charCodeAt(start + i)) return false
  return true
}

/** A slice of 13 or more characters keeps its whole caption alive in V8; copying through UTF-16 keeps any text intact. */
function ownCopy(word: string): string {
  return word.length < 13 ? word : Buffer.from(word, 'utf16le').toString('utf16le')
}
