// The JSON inside a model's text: the whole of it, a code fence, or the last bracket block. Nothing is ever evaluated; what does not
// parse after one repair of quotes and commas is not an answer.
import { tryJson } from '../../core/index.ts'

export type Candidate = 'whole' | 'fence' | 'block'

export interface FoundJson {
  value: unknown
  candidate: Candidate
  repaired: boolean
}

/** The first candidate that parses; what it holds is final. Null: none does. */
export function findJson(region: string): FoundJson | null {
  const candidates: [Candidate, string | null][] = [
    ['whole', region.trim()],
    ['fence', lastFence(region)],
    ['block', lastBlock(region)],
  ]
  for (const [candidate, text] of candidates) {
    if (text === null) continue
    for (const repaired of [false, true]) {
      const value = tryJson(repaired ? repair(text) : text) // an untrained policy rarely writes JSON
      if (value !== undefined) return { value, candidate, repaired }
    }
  }
  return null
}

const ticks = '```'

/** Inside of the last complete pair of three backticks, pairs taken from left to right. */
function lastFence(region: string): string | null {
  let last: string | null = null
  for (let at = 0; ; ) {
    const open = region.indexOf(ticks, at)
    if (open < 0) return last
    const start = open + ticks.length
    const word = /[A-Za-z0-9_+-]*/y
    word.lastIndex = start
    word.exec(region)
    const close = region.indexOf(ticks, word.lastIndex)
    if (close < 0) return last
    last = region.slice(word.lastIndex, close).trim()
    at = close + ticks.length
  }
}

/** Index after the string that starts at a quote; the length of the text when it does not end. */
function afterString(text: string, quote: number): number {
  for (let i = quote + 1; i < text.length; i++) {
    if (text[i] === '\\') i++
    else if (text[i] === '"') return i + 1
  }
  return text.length
}

/** The last balanced top-level block of brackets. */
function lastBlock(region: string): string | null {
  let last: string | null = null
  let start = 0
  const open: string[] = []
  for (let i = 0; i < region.length; i++) {
    const c = region[i]!
    if (c === '[' || c === '{') {
      if (open.length === 0) start = i
      open.push(c === '[' ? ']' : '}')
    } else if (open.length === 0) {
    } else if (c === '"') {
      i = afterString(region, i) - 1
    } else if (c === ']' || c === '}') {
      if (open.pop() !== c) open.length = 0
      else if (open.length === 0) last = region.slice(start, i + 1)
    }
  }
  return last
}

/** Single quotes if there is no double one, and commas before a closing bracket. */
function repair(text: string): string {
  const quoted = text.includes('"') ? text : text.replaceAll("'", '"')
  let out = ''
  for (let i = 0; i < quoted.length; ) {
    const end = quoted[i] === '"' ? afterString(quoted, i) : i + 1
    if (!(quoted[i] === ',' && closesAfter(quoted, i + 1))) out += quoted.slice(i, end)
    i = end
  }
  return out
}

function closesAfter(text: string, from: number): boolean {
  let i = from
  while (i < text.length && ' \t\n\r'.includes(text[i]!)) i++
  return text[i] === ']' || text[i] === '}'
}
