// Text cut at added tokens, as the slow tokenizers of transformers do it: leftmost, longest first, then each token's own rules.
import { SymbolTrie, unitsOf } from './sentencepiece-symbols.ts'
import type { AddedToken } from './tokenizer-files.ts'

type TextPart = { text: string } | { token: AddedToken }

/** Python's white space, which differs from JavaScript's. */
const blanks = '[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+'
const leading = new RegExp(`^${blanks}`)
const trailing = new RegExp(`${blanks}$`)

export class AddedTokenSplitter {
  readonly #trie = new SymbolTrie()
  readonly #tokens: ReadonlyMap<string, AddedToken>

  constructor(tokens: readonly AddedToken[]) {
    this.#tokens = new Map(tokens.filter((t) => t.content !== '').map((t) => [t.content, t]))
    for (const content of this.#tokens.keys()) this.#trie.add(unitsOf(content), 0)
  }

  split(text: string): TextPart[] {
    const parts = this.#cut(text)
    for (let i = 0; i < parts.length; i++) this.#applyRules(parts, i)
    return parts
      .filter((part) => part !== '')
      .map((part) => {
        const token = this.#tokens.get(part)
        return token ? { token } : { text: part }
      })
  }

  #cut(text: string): string[] {
    const units = unitsOf(text)
    const parts: string[] = []
    let start = 0
    for (let at = 0; at < units.length; ) {
      const length = this.#trie.longest(units, at)
      if (length === 0) {
        at++
        continue
      }
      if (at > start) parts.push(text.slice(start, at))
      parts.push(text.slice(at, at + length))
      at += length
      start = at
    }
    if (start < text.length) parts.push(text.slice(start))
    return parts
  }

  /** lstrip, rstrip take in blanks of the neighbours; a single_word token that touches a neighbour is ordinary text. */
  #applyRules(parts: string[], i: number): void {
    const token = this.#tokens.get(parts[i]!)
    if (!token) return
    const [left, right] = [parts[i - 1] ?? '', parts[i + 1] ?? '']
    if (token.rstrip && right) parts[i + 1] = right.replace(leading, '')
    if (token.lstrip && left) parts[i - 1] = left.replace(trailing, '')
    if (token.single_word && left && left.at(-1) !== ' ') {
      parts[i - 1] += token.content
      parts[i] = ''
    } else if (token.single_word && right && right[0] !== ' ') {
      parts[i + 1] = token.content + parts[i + 1]
      parts[i] = ''
    }
  }
}
