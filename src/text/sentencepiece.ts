// SentencePiece as data: `tokenizer.model` is read, never run. Equal to the library (0.1.97) in ids and decoded text.
import { Mismatch } from '../core/index.ts'
import { lossyText } from './byte-level.ts'
import { bpePieces } from './sentencepiece-bpe.ts'
import { readSentencePieceModel, type SentencePieceModel } from './sentencepiece-model.ts'
import { blankSymbol, Normalizer } from './sentencepiece-normalizer.ts'
import { SymbolTrie, unitsOf } from './sentencepiece-symbols.ts'
import { Unigram } from './sentencepiece-unigram.ts'

/** Opens the bytes of a `tokenizer.model`; anything else is a Mismatch. */
export function openSentencePiece(bytes: Uint8Array, where = 'tokenizer.model'): SentencePiece {
  return new SentencePiece(readSentencePieceModel(bytes, where))
}

const utf8 = new TextEncoder()

export class SentencePiece {
  readonly model: SentencePieceModel
  readonly #normalizer: Normalizer
  readonly #denormalizer: Normalizer | null
  readonly #userSymbols = new SymbolTrie()
  readonly #unigram: Unigram | null

  constructor(model: SentencePieceModel) {
    const { where, whitespaceAsSuffix: suffix, denormalizer } = model
    const symbols = model.pieces.filter((p) => p.type === 'user').map((p) => p.text)
    this.model = model
    for (const symbol of symbols) this.#userSymbols.add(unitsOf(symbol), 0)
    this.#normalizer = new Normalizer(model.normalizer, symbols, suffix, where)
    this.#denormalizer = denormalizer && new Normalizer(denormalizer, [], suffix, where)
    this.#unigram = model.kind === 'unigram' ? new Unigram(model) : null
  }

  get size(): number {
    return this.model.pieces.length
  }

  get unknownId(): number {
    return this.model.unknownId
  }

  /** Ids of a text; neither bos nor eos is added. */
  encode(text: string): Int32Array {
    return Int32Array.from(this.encodePieces(text), (p) => p.id)
  }

  /** Pieces and ids of a text; a run of unknown characters is one piece with its own text. */
  encodePieces(text: string): { piece: string; id: number }[] {
    const normal = this.#normalizer.normalize(text)
    const parts = this.#unigram?.pieces(normal) ?? bpePieces(this.model, this.#userSymbols, normal)
    const out: { piece: string; id: number }[] = []
    let afterUnknown = false
    for (const piece of parts) {
      const id = this.idOf(piece) ?? this.unknownId
      const unknown = id === this.unknownId
      if (unknown && this.model.byteFallback) out.push(...this.#bytePieces(piece))
      else if (unknown && afterUnknown) out.at(-1)!.piece += piece
      else out.push({ piece, id })
      afterUnknown = unknown
    }
    return out
  }

  #bytePieces(piece: string): { piece: string; id: number }[] {
    return Array.from(utf8.encode(piece), (byte) => {
      const id = this.model.byteIds[byte]!
      return { piece: this.pieceOf(id), id }
    })
  }

  /** Text of ids; an id the model does not have is a Mismatch. */
  decode(ids: ArrayLike<number>): string {
    let text = ''
    let run: number[] = []
    let atStart = true
    let sawBlank = false
    for (let i = 0; i < ids.length; i++) {
      const { type, text: piece } = this.#piece(ids[i]!)
      if (type === 'byte') {
        run.push(Number.parseInt(piece.slice(3, 5), 16))
        continue
      }
      text += byteText(run)
      run = []
      if (sawBlank || text !== '') atStart = false
      const surface = this.#surface(ids[i]!, atStart)
      sawBlank = surface.sawBlank
      text += surface.text
    }
    text += byteText(run)
    return this.#denormalizer ? this.#denormalizer.normalize(text) : text
  }

  /** Text of one piece; at the start of a text a blank is dropped: one for the dummy prefix, all where extra blanks are removed. */
  #surface(id: number, atStart: boolean): { text: string; sawBlank: boolean } {
    const { type, text } = this.model.pieces[id]!
    if (type === 'control') return { text: '', sawBlank: false }
    if (type === 'unknown') return { text: this.model.unknownSurface, sawBlank: false }
    const { addDummyPrefix, removeExtraWhitespaces } = this.model.normalizer
    const drop = atStart && (addDummyPrefix || removeExtraWhitespaces) && text.startsWith(blankSymbol)
    const rest = drop ? text.slice(1) : text
    return { text: rest.replaceAll(blankSymbol, ' '), sawBlank: drop && !removeExtraWhitespaces }
  }

  /** The id of a piece, control and byte pieces included. */
  idOf(piece: string): number | undefined {
    return this.model.reservedIds.get(piece) ?? this.model.textIds.get(piece)
  }

  /** Ids of the characters of a text, one by one: nothing is merged. */
  spell(text: string): number[] {
    return Array.from(text.replaceAll(' ', blankSymbol)).flatMap((character) => {
      const id = this.model.textIds.get(character)
      if (id !== undefined) return [id]
      return this.model.byteFallback ? this.#bytePieces(character).map((p) => p.id) : [this.unknownId]
    })
  }

  pieceOf(id: number): string {
    return this.#piece(id).text
  }

  /** Bytes that one id adds to a text, alone and not at its start. */
  bytesOf(id: number): Uint8Array {
    const { type, text } = this.#piece(id)
    if (type === 'byte') return Uint8Array.of(Number.parseInt(text.slice(3, 5), 16))
    return utf8.encode(this.#surface(id, false).text)
  }

  #piece(id: number) {
    const piece = this.model.pieces[id]
    if (piece) return piece
    throw new Mismatch({ where: this.model.where, field: 'decode', expected: `an id below ${this.size}`, got: id })
  }
}

/** Bytes of one run: whole characters, and one U+FFFD for every byte that belongs to none. */
function byteText(run: readonly number[]): string {
  let text = ''
  for (let at = 0; at < run.length; ) {
    const length = characterLength(run, at)
    text += length === 0 ? '\ufffd' : lossyText(Uint8Array.from(run.slice(at, at + length)))
    at += Math.max(1, length)
  }
  return text
}

/** Bytes of the well-formed character at a place, 0 if there is none. */
function characterLength(bytes: readonly number[], at: number): number {
  const lead = bytes[at]!
  if (lead < 0x80) return 1
  const length = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0
  for (let i = 1; i < length; i++) if ((bytes[at + i] ?? 0) >> 6 !== 2) return 0
  const second = bytes[at + 1]!
  const overlong = (lead === 0xe0 && second < 0xa0) || (lead === 0xf0 && second < 0x90)
  const outside = (lead === 0xed && second >= 0xa0) || (lead === 0xf4 && second >= 0x90)
  return overlong || outside ? 0 : length
}
