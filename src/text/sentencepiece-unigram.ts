// SentencePiece's unigram model: the segmentation with the highest sum of scores, found from left to right. Sums are float32 where
// the library's are, because near-ties are decided by their last bits.
import type { SentencePieceModel } from './sentencepiece-model.ts'
import { SymbolTrie } from './sentencepiece-symbols.ts'

const unknownPenalty = 10
/** The library starts its maximum at the smallest positive float32; scores are below 0, so it stays there. */
const smallestFloat = 1.1754943508222875e-38

export class Unigram {
  readonly #model: SentencePieceModel
  /** Ids by code points. */
  readonly #trie = new SymbolTrie()
  readonly #unknownScore: number
  readonly #bestScore: number

  constructor(model: SentencePieceModel) {
    this.#model = model
    let lowest = Number.POSITIVE_INFINITY
    let highest = smallestFloat
    for (const { type, score } of model.pieces) {
      if (type !== 'normal') continue
      lowest = Math.min(lowest, score)
      highest = Math.max(highest, score)
    }
    this.#unknownScore = Math.fround((Number.isFinite(lowest) ? lowest : 0) - unknownPenalty)
    this.#bestScore = highest
    for (const [text, id] of model.textIds) {
      this.#trie.add(
        Array.from(text, (character) => character.codePointAt(0)!),
        id,
      )
    }
  }

  /** Pieces of a normalised text; a character that no piece covers is a separate piece with the unknown id. */
  pieces(text: string): string[] {
    const characters = Array.from(text)
    const n = characters.length
    const score = new Float32Array(n + 1)
    const from = new Int32Array(n + 1).fill(-1)
    for (let start = 0; start < n; start++) this.#extend(characters, start, score, from)
    const out: string[] = []
    for (let end = n; end > 0; end = from[end]!) out.push(characters.slice(from[end]!, end).join(''))
    return out.reverse()
  }

  #extend(characters: readonly string[], start: number, score: Float32Array, from: Int32Array): void {
    const here = score[start]!
    const offer = (end: number, sum: number) => {
      if (from[end] !== -1 && !(sum > score[end]!)) return
      score[end] = sum
      from[end] = start
    }
    let single = false
    let bytes = 0
    for (let end = start, node: number | undefined = 0; end < characters.length; ) {
      const code = characters[end]!.codePointAt(0)!
      node = this.#trie.next(node, code)
      if (node === undefined) break
      end++
      bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4
      const id = this.#trie.valueAt(node)
      if (id === undefined || this.#model.pieces[id]!.type === 'unused') continue
      offer(end, here + this.#scoreOf(id, bytes))
      if (end === start + 1) single = true
    }
    if (!single) offer(start + 1, Math.fround(here + this.#unknownScore))
  }

  /** A user-defined piece is worth more than any piece of its length. */
  #scoreOf(id: number, bytes: number): number {
    const { type, score } = this.#model.pieces[id]!
    return type === 'user' ? Math.fround(bytes * this.#bestScore) - 0.1 : score
  }
}
