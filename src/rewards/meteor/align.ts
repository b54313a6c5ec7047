// The three matching stages of NLTK's METEOR. H hypothesis tokens, R reference tokens, both as vocabulary numbers.
import { Ints } from './ints.ts'
import { findTokens, type MeteorTokenizer, prepare } from './tokens.ts'
import { Vocabulary } from './vocabulary.ts'

export interface Alignment {
  hypLength: number
  refLength: number
  /** Matches per stage: exact, stem, synonym. */
  stages: [number, number, number]
  matches: number
  chunks: number
}

const none = -1

export class Aligner {
  #vocabulary = new Vocabulary()
  readonly #spans = new Ints()
  readonly #hyp = new Ints()
  readonly #ref = new Ints()
  /** Per hypothesis token the index of its reference token, or none. */
  readonly #partner = new Ints()
  /** Per reference token: the former free token with the same number. */
  readonly #before = new Ints()
  /** Per vocabulary number, plus one so that zero means none: the last free reference token with it. */
  #last = new Int32Array(1024)
  readonly #refTaken = new Ints()

  align(reference: string, hypothesis: string, tokenizer: MeteorTokenizer): Alignment {
    if (this.#vocabulary.full) this.#vocabulary = new Vocabulary()
    this.#read(hypothesis, tokenizer, this.#hyp)
    this.#read(reference, tokenizer, this.#ref)
    this.#partner.reserve(this.#hyp.length).fill(none, 0, this.#hyp.length)
    this.#refTaken.reserve(this.#ref.length).fill(0, 0, this.#ref.length)
    const exact = this.#matchEqual()
    const rest = Math.min(this.#hyp.length, this.#ref.length) - exact
    const stem = rest > 0 ? this.#matchStems() : 0
    const synonym = rest > stem ? this.#matchSynonyms() : 0
    return {
      hypLength: this.#hyp.length,
      refLength: this.#ref.length,
      stages: [exact, stem, synonym],
      matches: exact + stem + synonym,
      chunks: this.#countChunks(),
    }
  }

  #read(text: string, tokenizer: MeteorTokenizer, into: Ints): void {
    const prepared = prepare(text, tokenizer)
    findTokens(prepared, this.#spans)
    const { data, length } = this.#spans
    const ids = into.reserve(length >> 1)
    for (let k = 0; k < length; k += 2) ids[k >> 1] = this.#vocabulary.idOf(prepared, data[k]!, data[k + 1]!)
    into.length = length >> 1
  }

  /**
   * Both sides from the end, each hypothesis token takes the last free reference token that is equal. The free tokens of
   * one number are a chain, so this is linear and still NLTK's order.
   */
  #matchEqual(): number {
    if (this.#vocabulary.size > this.#last.length) this.#last = new Int32Array(2 * this.#vocabulary.size)
    const last = this.#last
    const hyp = this.#hyp.data
    const ref = this.#ref.data
    const partner = this.#partner.data
    const taken = this.#refTaken.data
    const before = this.#before.reserve(this.#ref.length)
    for (let j = 0; j < this.#ref.length; j++) {
      if (taken[j]) continue
      before[j] = last[ref[j]!]!
      last[ref[j]!] = j + 1
    }
    let matches = 0
    for (let i = this.#hyp.length - 1; i >= 0; i--) {
      const j = partner[i] === none ? last[hyp[i]!]! - 1 : none
      if (j === none) continue
      partner[i] = j
      taken[j] = 1
      last[hyp[i]!] = before[j]!
      matches++
    }
    for (let j = 0; j < this.#ref.length; j++) last[ref[j]!] = 0
    return matches
  }

  #matchStems(): number {
    const vocabulary = this.#vocabulary
    const hyp = this.#hyp.data
    const ref = this.#ref.data
    for (let i = 0; i < this.#hyp.length; i++) if (this.#partner.data[i] === none) hyp[i] = vocabulary.stemOf(hyp[i]!)
    for (let j = 0; j < this.#ref.length; j++) if (!this.#refTaken.data[j]) ref[j] = vocabulary.stemOf(ref[j]!)
    return this.#matchEqual()
  }

  /** On the stems of the former stage; the synonym set is that of the hypothesis. Equal stems are matched already. */
  #matchSynonyms(): number {
    const vocabulary = this.#vocabulary
    const partner = this.#partner.data
    const taken = this.#refTaken.data
    // What is left of the reference and known to WordNet, in order: index and key number.
    const at = this.#before.data
    const keys = this.#ref.data
    let left = 0
    for (let j = 0; j < this.#ref.length; j++) {
      if (taken[j]) continue
      const key = vocabulary.keyOf(keys[j]!)
      if (key < 0) continue
      at[left] = j
      keys[left++] = key
    }
    let matches = 0
    for (let i = this.#hyp.length - 1; i >= 0 && left > 0; i--) {
      if (partner[i] !== none) continue
      const synonyms = vocabulary.synonymsOf(this.#hyp.data[i]!)
      if (synonyms.size === 0) continue
      let k = left - 1
      while (k >= 0 && !synonyms.has(keys[k]!)) k--
      if (k < 0) continue
      partner[i] = at[k]!
      matches++
      left--
      at.copyWithin(k, k + 1, left + 1)
      keys.copyWithin(k, k + 1, left + 1)
    }
    return matches
  }

  /** Runs of matches that advance by one on both sides; 0 when nothing matches. */
  #countChunks(): number {
    const partner = this.#partner.data
    let chunks = 0
    let previous = none
    let expected = none
    for (let i = 0; i < this.#hyp.length; i++) {
      const j = partner[i]!
      if (j === none) continue
      if (previous !== i - 1 || j !== expected || chunks === 0) chunks++
      previous = i
      expected = j + 1
    }
    return chunks
  }
}
