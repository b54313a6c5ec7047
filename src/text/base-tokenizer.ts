import { Mismatch } from '../core/index.ts'
import { lossyText } from './byte-level.ts'
import type { TextRange } from './plain-text.ts'
import { contentsOf } from './tokenizer-files.ts'

export interface EncodeOptions {
  /** Adds what the post-processor adds: BOS for Llama and InternLM2, nothing for Qwen2. Default true. */
  addSpecial?: boolean
  /** Where the text is words and nothing else: no added token is read in these ranges, whatever they spell. */
  plain?: readonly TextRange[]
}

/** A tokenizer of a checkpoint folder; the subclasses read tokenizer.json or a SentencePiece model. */
export abstract class Tokenizer {
  /** Highest id + 1; a model may have more rows. */
  abstract readonly vocabSize: number
  /** What ends a turn for the tokenizer itself, begins a sequence, fills a batch; undefined if the folder names none. */
  abstract readonly eosId: number | undefined
  abstract readonly bosId: number | undefined
  abstract readonly padId: number | undefined
  /** Every id that ends a generation. */
  abstract readonly eosIds: ReadonlySet<number>
  abstract readonly specialIds: ReadonlySet<number>
  /** Ids of the text. */
  abstract encode(text: string, options?: EncodeOptions): Int32Array
  /** Text of ids; ids above the vocabulary (padding rows of a model) add nothing. */
  abstract decode(ids: ArrayLike<number>, options?: { skipSpecial?: boolean }): string
  abstract idOf(token: string): number | undefined
  /** Bytes that one token adds to a text. */
  abstract tokenBytes(id: number): Uint8Array
  /** The file of the vocabulary, for messages. */
  protected abstract readonly where: string

  requireId(token: string): number {
    const id = this.idOf(token)
    if (id !== undefined) return id
    throw new Mismatch({ where: this.where, field: 'vocabulary', expected: `the token ${token}`, got: 'not there' })
  }

  /** Text that one token shows, alone. */
  tokenText(id: number): string {
    return lossyText(this.tokenBytes(id))
  }

  /** The id of a token named in tokenizer_config.json: a string, or an object with content. */
  protected namedId(value: unknown): number | undefined {
    const [name] = contentsOf(value)
    return name === undefined ? undefined : this.requireId(name)
  }

  /** EOS and the other ids that the folder declares; one that is not in the vocabulary is a Mismatch. */
  protected checkedEos(declared: readonly number[], isKnown: (id: number) => boolean): ReadonlySet<number> {
    const ids = new Set(this.eosId === undefined ? declared : [this.eosId, ...declared])
    for (const id of ids) {
      if (isKnown(id)) continue
      throw new Mismatch({ where: this.where, field: 'eos_token_id', expected: `below ${this.vocabSize}`, got: id })
    }
    return ids
  }
}
