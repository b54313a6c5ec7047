// Reading a judge's reply to a multiple-choice question, by the list of rules that DLC-Bench's evaluation follows; where
// that one would crash (empty reply, a letter beyond the last option) ours finds no answer.
import { tryJson } from '../../core/index.ts'

const letters = 'abcde'

/** Whether an option's text is in the reply; a short one ("no") must be a whole word, or "cannot" would contain it. */
function positionIn(reply: string, option: string): number {
  if (option.length > 3) return reply.indexOf(option)
  const escaped = option.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return reply.search(new RegExp(`(?<![\\p{L}\\p{N}])${escaped}(?![\\p{L}\\p{N}])`, 'u'))
}

function exact(reply: string, options: readonly string[]): number {
  return options.findIndex((o, i) => reply === o || reply === `${letters[i]}. ${o}` || reply === letters[i])
}

function longest(indices: readonly number[], options: readonly string[]): number {
  return indices.reduce((best, i) => (options[i]!.length > options[best]!.length ? i : best))
}

function lastMentioned(found: readonly { i: number; at: number }[], options: readonly string[]): number {
  const last = Math.max(...found.map((f) => f.at))
  return longest(
    found.filter((f) => f.at === last).map((f) => f.i),
    options,
  )
}

function within(letter: string, count: number): number | null {
  const i = letters.indexOf(letter)
  return i >= 0 && i < count ? i : null
}

/** Index of the option the reply names, or null. */
export function parseChoice(reply: string, choices: readonly string[]): number | null {
  const p = reply.trim().toLowerCase()
  const options = choices.map((c) => c.trim().toLowerCase())
  if (p === '') return null
  const same = exact(p, options)
  if (same >= 0) return same
  const found = options.map((o, i) => ({ i, at: positionIn(p, o) })).filter((f) => f.at >= 0)
  if (found.length === 1) return found[0]!.i
  if (/^[a-e]\./.test(p)) return within(p[0]!, options.length)
  if (found.length > 1) return lastMentioned(found, options)
  if (p.length === 1) return within(p, options.length)
  const around = options.flatMap((o, i) => (o.includes(p) ? [i] : []))
  if (around.length > 0) return longest(around, options)
  return /^[a-e]\n/.test(p) ? within(p[0]!, options.length) : null
}

const refusal =
  /\b(?:sorry|cannot|can't|can\u2019t|unable|won't|not able|as an ai|language model|i do not|i don't|decline)\b/i

/** As parseChoice, for a judge that may decorate its letter, or refuse. */
export function readChoice(reply: string, choices: readonly string[]): number | null {
  const opened = reply.trim().replace(/^[\s"'`*([{<]+/, '')
  const bare = opened.replace(/(?<![\s"'`*)\]}>])[\s"'`*)\]}>]+$/, '') // looks at each run once
  if (/^[a-e][.):]?$/i.test(bare)) return within(bare[0]!.toLowerCase(), choices.length)
  const refused = refusal.test(bare) && !choices.some((c) => bare.toLowerCase().includes(c.trim().toLowerCase()))
  if (refused) return null
  const byText = parseChoice(bare, choices)
  return byText ?? (/^[a-e][):*]/i.test(bare) ? within(bare[0]!.toLowerCase(), choices.length) : null)
}

/** The replies inside a JSON array of letters; an element that is missing or no string is null. */
export function readChoices(reply: string, questions: readonly (readonly string[])[]): (number | null)[] | null {
  const list = firstJson(reply, '[')
  if (!Array.isArray(list)) return null
  return questions.map((options, i) => (typeof list[i] === 'string' ? readChoice(list[i], options) : null))
}

/** A number from 0 to 10, with a label before it and `/10` after it if at all. */
const grade =
  /^(?:(?:(?:the|my|final|overall) )*(?:grade|score|rating|answer|number)(?: is)? ?[:=]? ?)?(10|\d)(\.\d+)? ?(?:(?:\/|out of|of) ?10)?\.?$/i

/**
 * A reply that is a grade and nothing else (`7`, `8.5/10`, `Grade: 8`, `**9**`, `{"score": 9}`), as a share of 10. Prose is null, even
 * if it has a number: which number of a sentence is the grade cannot be known.
 */
export function readGrade(reply: string): number | null {
  const bare = reply
    .replace(/[\s"'`*_{}()[\]<>]+/g, ' ')
    .replaceAll(' :', ':')
    .trim()
  const [, whole, part] = grade.exec(bare) ?? []
  const value = Number(`${whole ?? ''}${part ?? ''}`)
  return whole !== undefined && value <= 10 ? value / 10 : null
}

/** End of the balanced bracket that starts at `from`, or -1. Brackets inside strings do not count. */
function balancedEnd(text: string, from: number): number {
  let depth = 0
  let quoted = false
  for (let i = from; i < text.length; i++) {
    const c = text[i]!
    if (quoted) {
      if (c === '\\') i++
      else if (c === '"') quoted = false
    } else if (c === '"') quoted = true
    else if (c === '{' || c === '[') depth++
    else if ((c === '}' || c === ']') && --depth === 0) return i + 1
  }
  return -1
}

/** The first balanced JSON value that opens with the bracket; undefined when there is none or it does not parse. */
export function firstJson(reply: string, open: '{' | '['): unknown {
  const text = reply.slice(0, 65_536)
  let at = text.indexOf(open)
  // A reply full of brackets is not searched without end.
  for (let tries = 0; at >= 0 && tries < 20; tries++, at = text.indexOf(open, at + 1)) {
    const end = balancedEnd(text, at)
    if (end < 0) return undefined
    const value = tryJson(text.slice(at, end))
    if (value !== undefined) return value // else prose in brackets: look at the next one
  }
  return undefined
}
