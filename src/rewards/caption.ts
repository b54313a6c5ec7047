import type { LengthShaping } from './config.ts'

/** Python's white space; JavaScript's \s has U+FEFF too and lacks U+001C-001F and U+0085. */
const pythonSpace = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000'
const spaces = new RegExp(`[${pythonSpace}]+`, 'g')
const notSpaces = new RegExp(`[^${pythonSpace}]+`, 'g')

/** Markers of the model's own vocabulary that may be left in decoded text. */
const markers = /\[SEG\]|<\/?(?:p|vp|img)>|<IMG_CONTEXT>/g
const quotePairs = ['""', "''", '\u201c\u201d', '\u2018\u2019', '``']

function unquote(text: string): string {
  const pair = quotePairs.find(([open, close]) => text.length >= 2 && text[0] === open && text.at(-1) === close)
  return pair ? text.slice(1, -1).trim() : text
}

function squeeze(text: string): string {
  return text.replace(spaces, ' ').replace(/^ | $/g, '')
}

/** A generated caption as every reward and every prompt sees it. Empty stays empty. */
export function cleanCaption(text: string): string {
  return unquote(squeeze(text.replace(markers, ' ')))
}

/** Words of a text, as Python's str.split() cuts them. */
export function splitWords(text: string): string[] {
  return text.match(notSpaces) ?? []
}

/** Number of words of a caption, as the length reward counts them. */
export function countWords(text: string): number {
  return splitWords(text).length
}

export function hasMarkers(text: string): boolean {
  return text.search(markers) >= 0
}

export function countSeg(text: string): number {
  return text.split('[SEG]').length - 1
}

const clamp = (x: number, low: number, high: number) => Math.min(high, Math.max(low, x))

/** 1 for a caption of `min` to `max` words, less outside. */
export function lengthFactor(words: number, s: LengthShaping): number {
  const short = Math.max(0, s.min - words) / s.min
  const long = Math.min(1, Math.max(0, words - s.max) / s.max)
  const forShort = clamp(1 - s.lambda * short ** s.power, s.floor, 1)
  const forLong = clamp(1 - s.lambdaLong * long, s.floorLong, 1)
  return clamp(forShort * forLong, s.floor, 1)
}
