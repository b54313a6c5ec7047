import { Ints } from './ints.ts'

export type MeteorTokenizer = 'whitespace' | 'words'

/** Python's white space and nothing else: JavaScript's \s has U+FEFF and lacks U+001C-001F and U+0085. */
function isSpace(c: number): boolean {
  if (c <= 0x20) return c === 0x20 || (c >= 9 && c <= 13) || c >= 0x1c
  if (c < 0x1680) return c === 0x85 || c === 0xa0
  if (c <= 0x200a) return c >= 0x2000 || c === 0x1680
  return c === 0x2028 || c === 0x2029 || c === 0x202f || c === 0x205f || c === 0x3000
}

/** Writes start and end of each run of characters that are not white space, as Python's str.split() cuts them. */
export function findTokens(text: string, spans: Ints): void {
  spans.length = 0
  let start = -1
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if ((c > 0x20 && c < 0x7f) || !isSpace(c)) {
      if (start < 0) start = i
    } else if (start >= 0) {
      spans.push(start)
      spans.push(i)
      start = -1
    }
  }
  if (start < 0) return
  spans.push(start)
  spans.push(text.length)
}

// Punctuation and symbols are separate tokens, except - and ' between letters or digits.
const punctuation = /(?<![\p{L}\p{N}])['-]|['-](?![\p{L}\p{N}])|(?!['-])[\p{P}\p{S}]/gu
const letterOrDigit = /[\p{L}\p{N}]/u

/** The text whose white-space tokens are the tokens of a caption: in lower case, for 'words' with punctuation gone. */
export function prepare(text: string, tokenizer: MeteorTokenizer): string {
  const lower = text.toLowerCase()
  if (tokenizer === 'whitespace') return lower
  return split(lower.replace(punctuation, ' $& '))
    .filter((token) => letterOrDigit.test(token))
    .join(' ')
}

function split(text: string): string[] {
  const spans = new Ints()
  findTokens(text, spans)
  return Array.from({ length: spans.length / 2 }, (_, i) => text.slice(spans.data[2 * i], spans.data[2 * i + 1]))
}

export function tokenize(text: string, tokenizer: MeteorTokenizer = 'whitespace'): string[] {
  return split(prepare(text, tokenizer))
}
