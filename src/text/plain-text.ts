// Untrusted text inside a prompt, such as captions and phrases. It never becomes an added token (an image placeholder, [SEG], the end
// of a turn), whatever it spells. The prompt around it is encoded as usual.
import type { AddedToken, TokenizerJson } from './tokenizer-files.ts'

/** [start, end) in characters of a text. */
export type TextRange = readonly [number, number]

interface Occurrence {
  start: number
  end: number
}

/** A stretch of text, and whether added tokens are read in it. */
export interface Stretch {
  text: string
  plain: boolean
}

function occurrences(text: string, tokens: readonly string[]): Occurrence[] {
  const found: Occurrence[] = []
  for (const token of tokens) {
    for (let at = text.indexOf(token); at >= 0; at = text.indexOf(token, at + 1))
      found.push({ start: at, end: at + token.length })
  }
  return found
}

const overlap = (o: Occurrence, [start, end]: TextRange) => o.start < end && o.end > start

/**
 * Splits a text around the ranges that spell an added token. The cuts are at the nearest real added tokens, so that merges across the
 * ends of a range do not change. A text whose ranges spell none is returned whole.
 */
export function stretches(text: string, ranges: readonly TextRange[], added: readonly AddedToken[]): Stretch[] {
  const all = occurrences(
    text,
    added.map((token) => token.content),
  )
  const spelled = (o: Occurrence) => ranges.some((range) => overlap(o, range))
  const fenced = ranges.filter((range) => all.some((o) => overlap(o, range)))
  if (fenced.length === 0) return [{ text, plain: false }]
  const real = all.filter((o) => !spelled(o))
  const out: Stretch[] = []
  let at = 0
  for (const [start, end] of fenced) {
    const from = Math.max(at, ...real.filter((o) => o.end <= start).map((o) => o.end))
    const to = Math.min(text.length, ...real.filter((o) => o.start >= end).map((o) => o.start))
    if (from > at) out.push({ text: text.slice(at, from), plain: false })
    if (to > from) out.push({ text: text.slice(from, to), plain: true })
    at = Math.max(at, to)
  }
  if (at < text.length) out.push({ text: text.slice(at), plain: false })
  return out
}

/** The same tokenizer without its added tokens: their spelling is made of ordinary pieces. */
export function withoutAddedTokens(json: TokenizerJson): TokenizerJson {
  const { vocab, unk_token: unknown } = json.model
  const names = new Set(json.added_tokens.map((token) => token.content).filter((name) => name !== unknown))
  const kept = Array.isArray(vocab)
    ? vocab.map(([token, score]): [string, number] => [token, names.has(token) ? -1e9 : score])
    : Object.fromEntries(Object.entries(vocab).filter(([token]) => !names.has(token)))
  return { ...json, added_tokens: [], model: { ...json.model, vocab: kept } }
}
