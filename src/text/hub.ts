// The one door to the tokenizers package, with the types we rely on (its own do not resolve under nodenext).
import { Tokenizer } from '@huggingface/tokenizers'
import { Mismatch, messageOf } from '../core/index.ts'
import { checkPatterns, withinTime } from './patterns.ts'
import type { TokenizerJson } from './tokenizer-files.ts'

export interface HubTokenizer {
  encode(text: string, options: { add_special_tokens: boolean }): { ids: (number | undefined)[]; tokens: string[] }
  /** Pieces of a text in the byte alphabet, before BPE. */
  pre_tokenizer: ((text: string) => string[]) | null
}

/** Patterns without repeated repetitions cannot take long on a text of this length. */
const short = 256
const patience = 10_000 // ms

export function hubTokenizer(json: TokenizerJson, settings: Record<string, unknown>, where: string): HubTokenizer {
  checkPatterns(json, where)
  const built = guarded(where, 'a tokenizer that can be built', () => {
    // The package would otherwise drop spaces before punctuation.
    return new Tokenizer(json, { ...settings, clean_up_tokenization_spaces: false }) as unknown as HubTokenizer
  })
  const encode: HubTokenizer['encode'] = (text, options) => {
    if (text.length <= short) return guarded(where, 'a text that can be encoded', () => built.encode(text, options))
    return guarded(where, 'a text that can be encoded', () =>
      withinTime(patience, where, () => built.encode(text, options)),
    )
  }
  return { encode, pre_tokenizer: built.pre_tokenizer }
}

/** Whatever the package throws is about the file. */
function guarded<T>(where: string, expected: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (error instanceof Mismatch) throw error
    throw new Mismatch({ where, expected, got: messageOf(error) }, { cause: error })
  }
}
