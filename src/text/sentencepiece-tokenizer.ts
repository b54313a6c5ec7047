// The tokenizer of a folder whose vocabulary is a SentencePiece `tokenizer.model`: InternLM2 (Sa2VA-8B, -26B) and plain ones.
import { readFileSync } from 'node:fs'
import { refuseAt } from '../core/index.ts'
import { AddedTokenSplitter } from './added-tokens.ts'
import { type EncodeOptions, Tokenizer } from './base-tokenizer.ts'
import { joinBytes } from './byte-level.ts'
import { stretches } from './plain-text.ts'
import { openSentencePiece, type SentencePiece } from './sentencepiece.ts'
import { type AddedToken, addedToken, type SentencePieceFiles } from './tokenizer-files.ts'

const utf8 = new TextEncoder()

export function sentencePieceTokenizer(files: SentencePieceFiles): Tokenizer {
  return new SentencePieceTokenizer(files, openSentencePiece(readFileSync(files.modelPath), files.modelPath))
}

class SentencePieceTokenizer extends Tokenizer {
  readonly vocabSize: number
  readonly eosId: number | undefined
  readonly bosId: number | undefined
  readonly padId: number | undefined
  readonly eosIds: ReadonlySet<number>
  readonly specialIds: ReadonlySet<number>
  protected readonly where: string
  readonly #sp: SentencePiece
  readonly #added: ReadonlyMap<number, AddedToken>
  readonly #ids: ReadonlyMap<string, number>
  readonly #splitter: AddedTokenSplitter
  /** Whatever becomes the id of an added token: their names, and pieces whose ids they took over. */
  readonly #fenced: readonly AddedToken[]
  readonly #decoding: Decoding
  readonly #addBos: boolean
  readonly #addEos: boolean

  constructor(files: SentencePieceFiles, sp: SentencePiece) {
    super()
    const { settings } = files
    this.where = files.modelPath
    this.#sp = sp
    const added = withNamed(files, sp)
    this.#added = new Map(added.map((t) => [t.id, t]))
    this.#ids = new Map(added.map((t) => [t.content, t.id]))
    this.#splitter = new AddedTokenSplitter(added)
    const pieces = added.filter((t) => t.id < sp.size).map((t) => ({ ...t, content: sp.pieceOf(t.id) }))
    this.#fenced = [...added, ...pieces]
    this.vocabSize = added.reduce((most, t) => Math.max(most, t.id + 1), sp.size)
    const controls = sp.model.pieces.flatMap((piece, id) =>
      (piece.type === 'control' || piece.type === 'unknown') && !this.#added.has(id) ? [id] : [],
    )
    this.specialIds = new Set([...added.filter((t) => t.special).map((t) => t.id), ...controls])
    this.bosId = this.namedId(settings.bos_token) ?? this.idOf('<s>')
    this.eosId = this.namedId(settings.eos_token) ?? files.declaredEos[0] ?? this.idOf('</s>')
    this.padId = this.namedId(settings.pad_token)
    this.eosIds = this.checkedEos(files.declaredEos, (id) => Number.isInteger(id) && id >= 0 && id < this.vocabSize)
    const ofClass = isInternLM2(settings) || /^(Code)?Llama/.test(String(settings.tokenizer_class))
    this.#addBos = this.bosId !== undefined && ((settings.add_bos_token as boolean | undefined) ?? ofClass)
    this.#addEos = this.eosId !== undefined && settings.add_eos_token === true
    this.#decoding = isInternLM2(settings) ? internLM2Decoding(files, sp) : plainDecoding(sp)
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const parts = options.plain ? stretches(text, options.plain, this.#fenced) : [{ text, plain: false }]
    const inner = parts.flatMap((part) => (part.plain ? this.#words(part.text) : this.#parts(part.text)))
    const special = options.addSpecial ?? true
    const before = special && this.#addBos ? [this.bosId!] : []
    const after = special && this.#addEos ? [this.eosId!] : []
    return Int32Array.from([...before, ...inner, ...after])
  }

  #parts(text: string): number[] {
    return this.#splitter
      .split(text)
      .flatMap((part) => ('token' in part ? [part.token.id] : [...this.#sp.encode(part.text)]))
  }

  /** Ids of words in which no added token is read; a piece of the model whose id one has taken over is spelled out. */
  #words(text: string): number[] {
    return this.#sp.encodePieces(text).flatMap(({ piece, id }) => {
      return this.#added.has(id) && id !== this.#sp.unknownId ? this.#sp.spell(piece) : [id]
    })
  }

  decode(ids: ArrayLike<number>, options: { skipSpecial?: boolean } = {}): string {
    const tokens: Token[] = []
    for (const id of Array.from(ids)) {
      if (options.skipSpecial && this.specialIds.has(id)) continue
      const added = this.#added.get(id)
      if (added) tokens.push({ id, added })
      else if (id >= 0 && id < this.#sp.size) tokens.push({ id })
    }
    return this.#decoding(tokens)
  }

  idOf(token: string): number | undefined {
    return this.#ids.get(token) ?? this.#sp.idOf(token)
  }

  tokenBytes(id: number): Uint8Array {
    const added = this.#added.get(id)
    if (added) return utf8.encode(added.content)
    return id >= 0 && id < this.#sp.size ? this.#sp.bytesOf(id) : joinBytes([])
  }
}

/** The listed tokens, and those that are only named (bos, eos, pad, additional ones), at the ids their pieces have. */
function withNamed(files: SentencePieceFiles, sp: SentencePiece): AddedToken[] {
  const listed = new Map(files.listed.map((t) => [t.content, t]))
  for (const name of files.named) {
    const known = listed.get(name)
    const id = known?.id ?? sp.idOf(name)
    if (id === undefined) {
      const expected = 'an id in added_tokens.json, tokenizer_config.json or the model'
      const got = 'none'
      const hint = 'tokenizer_config.json or special_tokens_map.json name it as a special token'
      return refuseAt(files.modelPath)(name, expected, got, hint)
    }
    if (!known) listed.set(name, addedToken(id, name))
    else if (!known.special) listed.set(name, { ...known, special: true })
  }
  return [...listed.values()]
}

function isInternLM2(settings: Record<string, unknown>): boolean {
  return /InternLM2/.test(`${settings.tokenizer_class} ${JSON.stringify(settings.auto_map ?? '')}`)
}

interface Token {
  id: number
  added?: AddedToken
}

type Decoding = (tokens: readonly Token[]) => string

/** Added tokens as they are written, the pieces between them as the model decodes them. */
function plainDecoding(sp: SentencePiece): Decoding {
  return (tokens) => {
    let text = ''
    let run: number[] = []
    for (const { id, added } of tokens) {
      if (!added) {
        run.push(id)
        continue
      }
      text += sp.decode(run) + added.content
      run = []
    }
    return text + sp.decode(run)
  }
}

/**
 * InternLM2's class: tokens with ids after the model's are set apart by a blank on both sides; a special token inside the model's ids
 * puts a blank before the text in front of it; blanks before punctuation are always closed up.
 */
function internLM2Decoding(files: SentencePieceFiles, sp: SentencePiece): Decoding {
  const named = new Set(files.named)
  const additional = new Set(files.additional)
  const apart = ({ id, content }: AddedToken) => !named.has(content) || (additional.has(content) && id >= sp.size)
  const closing = files.settings.clean_up_tokenization_spaces === true
  return (tokens) => {
    const texts: string[] = []
    let run: Token[] = []
    const finish = () => {
      const text = internLM2Run(run, sp)
      if (text !== '') texts.push(text)
      run = []
    }
    for (const token of tokens) {
      if (!token.added || !apart(token.added)) {
        run.push(token)
        continue
      }
      finish()
      texts.push(token.added.content)
    }
    // the class joins a last run even where it has no text
    const last = internLM2Run(run, sp)
    if (run.length > 0) texts.push(last)
    const text = texts.join(' ')
    return closing ? closeUp(text) : text
  }
}

function internLM2Run(tokens: readonly Token[], sp: SentencePiece): string {
  let text = ''
  let run: number[] = []
  let afterSpecial = false
  for (const { id, added } of tokens) {
    if (added) {
      if (!afterSpecial) text += ' '
      text += sp.decode(run) + added.content
      run = []
    } else run.push(id)
    afterSpecial = added !== undefined
  }
  return closeUp(text + sp.decode(run))
}

const closings = [' .', ' ?', ' !', ' ,', " ' ", " n't", " 'm", " 's", " 've", " 're"]

function closeUp(text: string): string {
  return closings.reduce((t, closing) => t.replaceAll(closing, closing.trim()), text)
}
