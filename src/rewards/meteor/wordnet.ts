// WordNet 3.0 lookups as NLTK does them: morphy per part of speech, then the names of all synsets found.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import { expecting, packageRoot } from '../../core/index.ts'
import { decodeTable, type PosName, posNames, readSynonymIds, type Table } from './table.ts'
import { pairsOf } from './tokens.ts'

/** Detachment rules, order as in NLTK. Adverbs have none. */
const rules = [
  pairsOf('s> ses>s ves>f xes>x zes>z ches>ch shes>sh men>man ies>y'),
  pairsOf('s> ies>y es>e es> ed>e ed> ing>e ing>'),
  pairsOf('er> est> er>e est>e'),
  [],
]

function detach(forms: readonly string[], pos: number): string[] {
  const out: string[] = []
  for (const form of forms) {
    for (const [suffix, replacement] of rules[pos]!) {
      if (form.endsWith(suffix)) out.push(form.slice(0, form.length - suffix.length) + replacement)
    }
  }
  return out
}

export class WordNet {
  readonly #table: Table
  /** Where the keys with the first two bytes p start, p = 256 * first + second; a key of one letter has '\n' second. */
  readonly #bucket = new Uint32Array(65537)

  constructor(table: Table) {
    this.#table = table
    const { bytes, keyStart } = table
    for (let id = 0; id < this.numKeys; id++) {
      const start = keyStart[id]!
      this.#bucket[256 * bytes[start]! + bytes[start + 1]! + 1]!++
    }
    for (let p = 0; p < 65536; p++) this.#bucket[p + 1]! += this.#bucket[p]!
  }

  get numKeys(): number {
    return this.#table.flags.length
  }

  /** The number of a lemma (lower case, `_` for spaces), or -1. */
  idOf(lemma: string): number {
    const first = lemma.charCodeAt(0)
    const second = lemma.length > 1 ? lemma.charCodeAt(1) : 10
    if (!(first < 128 && second < 128)) return -1 // keys are ASCII; NaN for the empty word
    let low = this.#bucket[256 * first + second]!
    let high = this.#bucket[256 * first + second + 1]! - 1
    while (low <= high) {
      const middle = (low + high) >> 1
      const order = this.#compare(lemma, middle)
      if (order === 0) return middle
      if (order < 0) high = middle - 1
      else low = middle + 1
    }
    return -1
  }

  keyOf(id: number): string {
    const { bytes, keyStart } = this.#table
    const start = keyStart[id]!
    return Buffer.from(bytes.buffer, bytes.byteOffset + start, keyStart[id + 1]! - 1 - start).toString('latin1')
  }

  has(lemma: string, pos: PosName): boolean {
    return this.#isPos(this.idOf(lemma), posNames.indexOf(pos))
  }

  /** Base forms of a word that exist as the given part of speech. */
  morphy(word: string, pos: PosName): string[] {
    return this.#morphy(word, this.idOf(word), posNames.indexOf(pos)).map((id) => this.keyOf(id))
  }

  /**
   * Key numbers of all lower-case one-word names of all synsets of a word. Other names are left out: a name with a
   * capital or `_` never equals a stem. The word itself is not added.
   */
  synonymIds(word: string): Set<number> {
    const found = new Set<number>()
    const lower = word.toLowerCase()
    const own = this.idOf(lower)
    for (let pos = 0; pos < posNames.length; pos++) {
      for (const id of this.#morphy(lower, own, pos)) {
        for (const name of readSynonymIds(this.#table, id, pos)) found.add(name)
      }
    }
    return found
  }

  synonyms(word: string): string[] {
    return [...this.synonymIds(word)].map((id) => this.keyOf(id))
  }

  /** `own` is the number of the form itself, whatever its part of speech. */
  #morphy(form: string, own: number, pos: number): number[] {
    const found: number[] = []
    if (this.#isPos(own, pos)) found.push(own)
    const exceptions = this.#table.exceptions[pos]!.get(form)
    if (exceptions) return this.#addKnown(exceptions, pos, found)
    let forms = detach([form], pos)
    this.#addKnown(forms, pos, found)
    while (found.length === 0 && forms.length > 0) {
      forms = detach(forms, pos)
      this.#addKnown(forms, pos, found)
    }
    return found
  }

  #addKnown(forms: readonly string[], pos: number, found: number[]): number[] {
    for (const form of forms) {
      const id = this.idOf(form)
      if (this.#isPos(id, pos) && !found.includes(id)) found.push(id)
    }
    return found
  }

  #isPos(id: number, pos: number): boolean {
    return id >= 0 && ((this.#table.flags[id]! >> pos) & 1) === 1
  }

  #compare(lemma: string, id: number): number {
    const { bytes, keyStart } = this.#table
    const start = keyStart[id]!
    const length = keyStart[id + 1]! - 1 - start
    const shared = Math.min(length, lemma.length)
    for (let i = 0; i < shared; i++) {
      const difference = lemma.charCodeAt(i) - bytes[start + i]!
      if (difference !== 0) return difference
    }
    return lemma.length - length
  }
}

let loaded: WordNet | undefined

export function readWordNet(path: string): WordNet {
  const hint = 'reinstall the package or run scripts/gen-wordnet.ts'
  const info = { where: path, expected: 'a readable WordNet table', hint }
  const bytes = expecting(info, () => brotliDecompressSync(readFileSync(path)))
  return new WordNet(decodeTable(bytes, path))
}

/** The shipped table, read at the first call and kept. */
export function wordNet(): WordNet {
  loaded ??= readWordNet(join(packageRoot(), 'assets', 'wordnet-3.0.bin.br'))
  return loaded
}
