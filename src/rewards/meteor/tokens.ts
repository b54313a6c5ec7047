import { splitWords } from '../caption.ts'

/** `ies>y s>` as pairs of a suffix and its replacement. */
export function pairsOf(table: string): [suffix: string, replacement: string][] {
  return table.split(' ').map((rule) => rule.split('>') as [string, string])
}

export type MeteorTokenizer = 'whitespace' | 'words'

// Punctuation and symbols are separate tokens, except - and ' between letters or digits.
const punctuation = /(?<![\p{L}\p{N}])['-]|['-](?![\p{L}\p{N}])|(?!['-])[\p{P}\p{S}]/gu
const letterOrDigit = /[\p{L}\p{N}]/u

/** Tokens of a caption in lower case: cut as Python's str.split() does, or with 'words' without punctuation. */
export function tokenize(text: string, tokenizer: MeteorTokenizer = 'whitespace'): string[] {
  const lower = text.toLowerCase()
  if (tokenizer === 'whitespace') return splitWords(lower)
  return splitWords(lower.replace(punctuation, ' $& ')).filter((token) => letterOrDigit.test(token))
}
