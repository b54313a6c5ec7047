// The only import of the tokenizers package, with the types we rely on (its own do not resolve under nodenext).
import { Tokenizer } from '@huggingface/tokenizers'
import { expecting } from '../core/index.ts'
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
/** Long texts whose tokens are kept: a step asks for the same prompts when it samples, scores and learns. */
const most = 256

export function hubTokenizer(json: TokenizerJson, settings: Record<string, unknown>, where: string): HubTokenizer {
  checkPatterns(json, where)
  const built = expecting({ where, expected: 'a tokenizer that can be built' }, () => {
    // The package would otherwise drop spaces before punctuation.
    return new Tokenizer(json, { ...settings, clean_up_tokenization_spaces: false }) as unknown as HubTokenizer
  })
  const kept = new Map<string, ReturnType<HubTokenizer['encode']>>()
  const encode: HubTokenizer['encode'] = (text, options) => {
    const info = { where, expected: 'a text that can be encoded' }
    const work = () => built.encode(text, options)
    if (text.length <= short) return expecting(info, work)
    const key = `${options.add_special_tokens} ${text}`
    const made = kept.get(key) ?? expecting(info, () => withinTime(patience, where, work))
    kept.delete(key)
    kept.set(key, made) // the latest is the last
    if (kept.size > most) kept.delete(kept.keys().next().value!)
    return made
  }
  return { encode, pre_tokenizer: built.pre_tokenizer }
}
