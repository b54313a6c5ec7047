// The one door to the tokenizers package, with the types we rely on (its own do not resolve under nodenext).
import { Tokenizer } from '@huggingface/tokenizers'
import { Mismatch, messageOf } from '../core/index.ts'
import type { TokenizerJson } from './tokenizer-files.ts'

export interface HubTokenizer {
  encode(text: string, options: { add_special_tokens: boolean }): { ids: (number | undefined)[]; tokens: string[] }
  /** Pieces of a text in the byte alphabet, before BPE. */
  pre_tokenizer: ((text: string) => string[]) | null
}

export function hubTokenizer(json: TokenizerJson, settings: Record<string, unknown>, where: string): HubTokenizer {
  try {
    // The package would otherwise drop spaces before punctuation.
    return new Tokenizer(json, { ...settings, clean_up_tokenization_spaces: false }) as unknown as HubTokenizer
  } catch (error) {
    throw new Mismatch({ where, expected: 'a tokenizer that can be built', got: messageOf(error) }, { cause: error })
  }
}
