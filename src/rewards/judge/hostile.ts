// The policy is optimised against the judge, so its text is hostile input: it is normalised, stripped of template tokens,
// fenced, and searched for sentences that talk to the judge.
import { randomBytes } from 'node:crypto'

export type Flag = 'control' | 'template' | 'cut' | 'fence' | 'injection' | 'canary'

/** White space and newlines are ordinary; every other control or format character is a reason to flag. */
const spacing = /[\t-\r\x1c-\x1f\x85\u2028\u2029\p{Zs}]+/gu
const control = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}]+/gu

const template =
  /<\|[^|<>]{0,64}\|>|\[\/?INST\]|<<\/?SYS>>|<\/?s>|<\/?(?:start_of_turn|end_of_turn|bos|eos|think)>|<\/?(?:im_start|im_end)>|#{2,}\s*(?:instruction|response|input)\b:?/giu

const talk: readonly RegExp[] = [
  /\b(?:answer|option|choice|question)s?\b.{0,20}\b[A-E]\b/iu,
  /\banswers?\b.{0,20}\b(?:yes|no)\b/iu,
  /\b(?:ignore|disregard|forget)\b.{0,30}\b(?:instruction|above|previous|prior|rule)/iu,
  /\b(?:system|assistant|user|judge)\s*:/iu,
  /\bcorrect answer\b/iu,
  /\bscore of (?:1|10)\b/iu,
  /\b10\s*(?:\/|out of)\s*10\b/iu,
]
const listItem = /(?:^|[\s"'([])[A-E][.)]\s/giu

/** The longest text that is searched; captions are cut far below it before they are sent. */
const searched = 20_000

/** Whether a text talks to the judge instead of describing something. */
export function talksToJudge(text: string): boolean {
  const plain = text.slice(0, searched).normalize('NFKC').replace(control, '').replace(/\s+/g, ' ')
  const spaced = text.slice(0, searched).normalize('NFKC').replace(control, ' ').replace(/\s+/g, ' ')
  return [plain, spaced].some((t) => talk.some((r) => r.test(t)) || (t.match(listItem)?.length ?? 0) >= 3)
}

function cutTo(text: string, words: number): string {
  let at = 0
  for (let n = 0; n < words && at >= 0; n++) at = text.indexOf(' ', at + 1)
  // A "word" without end is cut too: 16 characters a word is twice what English needs.
  return text.slice(0, Math.min(at < 0 ? text.length : at, words * 16)).trimEnd()
}

/** Removing a token may join its neighbours to a new one, so it is repeated until nothing is left. */
function removeAll(text: string, what: RegExp): string {
  for (let last = ''; last !== text; ) {
    last = text
    text = text.replace(what, ' ')
  }
  return text
}

/** One line of plain text, and what had to be done to get it. */
export function makeSafe(text: string, maxWords: number): { text: string; flags: Flag[] } {
  const flags: Flag[] = []
  const spaced = text.slice(0, searched).normalize('NFC').replace(spacing, ' ')
  const visible = spaced.replace(control, ' ')
  if (visible !== spaced) flags.push('control')
  const bare = removeAll(visible, template)
  if (bare !== visible) flags.push('template')
  const line = bare.replace(/ +/g, ' ').trim()
  const cut = cutTo(line, maxWords)
  if (cut.length < line.length || text.length > searched) flags.push('cut')
  if (talksToJudge(text)) flags.push('injection')
  return { text: cut, flags }
}

/** A tag nobody could know when the text was written. */
export function newTag(): string {
  return randomBytes(6).toString('hex')
}

/** The text between two lines of the tag. The text is one line without the tag, so it cannot close its own fence. */
export function fence(text: string, tag: string): string {
  return `${tag}\n${removeAll(text, new RegExp(tag, 'gi'))}\n${tag}`
}
