import { Mismatch } from '../core/index.ts'
import { type EncodeOptions, Tokenizer } from './base-tokenizer.ts'
import { type HubTokenizer, hubTokenizer } from './hub.ts'
import { stretches, withoutAddedTokens } from './plain-text.ts'
import { sentencePieceTokenizer } from './sentencepiece-tokenizer.ts'
import { type TokenDecoder, tokenDecoder } from './token-decoder.ts'
import { readSentencePieceFiles, readTokenizerFiles, type TokenizerFiles } from './tokenizer-files.ts'

interface Entry {
  token: string
  isAdded: boolean
}

/** Reads a checkpoint folder (tokenizer.json, vocab.json + merges.txt + added_tokens.json, or tokenizer.model) or one of its files. */
export function loadTokenizer(path: string): Tokenizer {
  const sentencePiece = readSentencePieceFiles(path)
  if (sentencePiece) return sentencePieceTokenizer(sentencePiece)
  return new LoadedTokenizer(readTokenizerFiles(path))
}

class LoadedTokenizer extends Tokenizer {
  readonly vocabSize: number
  readonly eosId: number | undefined
  readonly bosId: number | undefined
  readonly padId: number | undefined
  readonly eosIds: ReadonlySet<number>
  readonly specialIds: ReadonlySet<number>
  protected readonly where: string
  readonly #hub: HubTokenizer
  readonly #decoder: TokenDecoder
  readonly #entries: (Entry | undefined)[]
  readonly #ids = new Map<string, number>()
  readonly #files: TokenizerFiles
  #plainHub: HubTokenizer | undefined
  /** Ids of the last texts: the questions of a run are the same in every prompt. */
  readonly #known = new Map<string, Int32Array>()

  constructor(files: TokenizerFiles) {
    super()
    this.where = files.where
    this.#files = files
    this.#decoder = tokenDecoder(files.json.decoder, files.where)
    this.#entries = readEntries(files)
    this.#entries.forEach((entry, id) => {
      if (entry) this.#ids.set(entry.token, id)
    })
    this.vocabSize = this.#entries.length
    this.specialIds = new Set(files.json.added_tokens.filter((t) => t.special).map((t) => t.id))
    this.#hub = hubTokenizer(files.json, files.settings, files.where)
    this.bosId = this.namedId(files.settings.bos_token)
    this.padId = this.namedId(files.settings.pad_token) ?? this.idOf('<|endoftext|>')
    this.eosId = this.namedId(files.settings.eos_token) ?? files.declaredEos[0] ?? this.#usualEos()
    this.eosIds = this.checkedEos(files.declaredEos, (id) => this.#entries[id] !== undefined)
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    const parts = options.plain ? stretches(text, options.plain, this.#files.json.added_tokens) : []
    if (parts.length <= 1 && !parts[0]?.plain) return this.#piece(this.#hub, text, options.addSpecial ?? true)
    const ids = parts.flatMap((part) => [...this.#piece(part.plain ? this.#plain() : this.#hub, part.text, false)])
    return Int32Array.from(options.addSpecial === false ? ids : this.#framed(ids))
  }

  #plain(): HubTokenizer {
    const { json, settings, where } = this.#files
    this.#plainHub ??= hubTokenizer(withoutAddedTokens(json), { ...settings, added_tokens_decoder: {} }, where)
    return this.#plainHub
  }

  /** What the post-processor puts around ids: seen on a text of one piece. */
  #framed(ids: readonly number[]): number[] {
    const [bare, full] = [false, true].map((special) => [...this.#piece(this.#hub, 'a', special)]) as [
      number[],
      number[],
    ]
    const at = full.findIndex((_, i) => bare.every((id, j) => full[i + j] === id))
    return [...full.slice(0, at), ...ids, ...full.slice(at + bare.length)]
  }

  #piece(hub: HubTokenizer, text: string, addSpecial: boolean): Int32Array {
    const key = `${hub === this.#hub} ${addSpecial} ${text}`
    const ids = this.#known.get(key) ?? this.#encoded(hub, text, addSpecial)
    if (!this.#known.has(key) && this.#known.size >= maxKnown) this.#known.clear()
    this.#known.set(key, ids)
    return ids.slice()
  }

  #encoded(hub: HubTokenizer, text: string, addSpecial: boolean): Int32Array {
    if (text === '' && !addSpecial) return new Int32Array(0)
    const { ids, tokens } = hub.encode(text, { add_special_tokens: addSpecial })
    const unknown = ids.findIndex((id) => !Number.isInteger(id))
    if (unknown >= 0) {
      const [expected, got] = ['pieces of the vocabulary', tokens[unknown]]
      throw new Mismatch({ where: this.where, field: 'encode', expected, got })
    }
    return Int32Array.from(ids as number[])
  }

  decode(ids: ArrayLike<number>, options: { skipSpecial?: boolean } = {}): string {
    const kept: Entry[] = []
    for (let i = 0; i < ids.length; i++) {
      const entry = this.#entries[ids[i]!]
      if (entry && !(options.skipSpecial && this.specialIds.has(ids[i]!))) kept.push(entry)
    }
    return this.#decoder.join(kept)
  }

  idOf(token: string): number | undefined {
    return this.#ids.get(token)
  }

  tokenBytes(id: number): Uint8Array {
    const entry = this.#entries[id]
    return entry ? this.#decoder.bytesOf(entry.token, entry.isAdded) : new Uint8Array(0)
  }

  /** For folders that declare nothing, such as a bare tokenizer.json. */
  #usualEos(): number | undefined {
    return this.idOf('<|im_end|>') ?? this.idOf('<|endoftext|>') ?? this.idOf('</s>')
  }
}

/** Texts whose ids are kept. */
const maxKnown = 1024

/** Ids beyond the number of tokens: a model's rows are filled up to a round number, but not by this much. */
const spareIds = 200_000

function readEntries(files: TokenizerFiles): (Entry | undefined)[] {
  const { vocab } = files.json.model
  const entries: (Entry | undefined)[] = []
  // Unigram vocabularies are lists of [token, score], BPE ones map a token to its id.
  const pairs: [string, number][] = Array.isArray(vocab)
    ? vocab.map((piece, id) => [Array.isArray(piece) ? piece[0] : (piece as unknown as string), id])
    : Object.entries(vocab)
  const most = pairs.length + files.json.added_tokens.length + spareIds
  const add = (id: unknown, token: unknown, isAdded: boolean) => {
    if (typeof token === 'string' && Number.isInteger(id) && (id as number) >= 0 && (id as number) < most)
      entries[id as number] = { token, isAdded }
    else throw wrongToken(files.where, token, id, most)
  }
  for (const [token, id] of pairs) add(id, token, false)
  for (const { id, content } of files.json.added_tokens) add(id, content, true)
  return entries
}

function wrongToken(where: string, token: unknown, id: unknown, most: number): Mismatch {
  const field = `token ${JSON.stringify(token)?.slice(0, 80)}`
  return new Mismatch({ where, field, expected: `text with an id from 0 to ${most - 1}`, got: id })
}
