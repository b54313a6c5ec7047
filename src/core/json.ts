import { expecting, Mismatch } from './errors.ts'
import { refuseFailedDownload } from './failed-download.ts'
import { readText, readTextFile } from './regular-file.ts'

/** A JSON object whose values are checked before use. */
export type JsonObject = Record<string, unknown>

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The type of a JSON value, for messages. */
export function typeOf(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'a list' : typeof value
}

/** Deeper values overflow the stack of whoever walks them. */
const maxLevels = 1000

const [quote, backslash, bracket, brace] = [34, 92, 91, 123]
const toClosing = 2 // from the code of [ to that of ], from { to }

/** Of the text, which is valid JSON: its values would take as long again as to parse them. */
function isTooDeep(text: string): boolean {
  let [levels, quoted] = [0, false]
  for (let at = 0; at < text.length && levels <= maxLevels; at++) {
    const code = text.charCodeAt(at)
    if (quoted && code === backslash) at++
    else if (code === quote) quoted = !quoted
    else if (quoted) continue
    else if (code === bracket || code === brace) levels++
    else if (code === bracket + toClosing || code === brace + toClosing) levels--
  }
  return levels > maxLevels
}

function decodeJson(text: string): unknown {
  const value: unknown = JSON.parse(text)
  if (!isTooDeep(text)) return value
  throw new SyntaxError(`more than ${maxLevels} levels`)
}

/** The value of a JSON text; undefined if it is none. */
export function tryJson(text: string): unknown {
  try {
    return decodeJson(text)
  } catch {
    return undefined
  }
}

/** The object of a JSON text; undefined for anything else. */
export function tryJsonObject(text: string): JsonObject | undefined {
  const value = tryJson(text)
  return isObject(value) ? value : undefined
}

/** The value of a JSON text; `where` names its file, or its file and line. */
export function parseJson(text: string, where: string, expected = 'a file of JSON'): unknown {
  refuseFailedDownload(Buffer.from(text.slice(0, 512)), where, expected)
  return expecting({ where, expected }, () => decodeJson(text))
}

/** What a file of JSON holds, however large it is. */
export function readJson(path: string): unknown {
  return parseJson(readText(path), path)
}

export interface JsonLine {
  value: Record<string, unknown>
  /** File and line, for messages. */
  where: string
}

/** The objects of a JSON Lines file, however large it is; blank lines are nothing. */
export function readJsonLines(path: string): JsonLine[] {
  const texts = readText(path).split('\n')
  return texts.flatMap((text, i) => {
    const where = `${path}: line ${i + 1}`
    return text.trim() === '' ? [] : [{ value: objectOf(parseJson(text, where, 'a JSON object'), where), where }]
  })
}

/** A JSON object from a file of settings, with its keys untouched. */
export const readJsonObject = (path: string): JsonObject => objectOf(parseJson(readTextFile(path), path), path)

function objectOf(value: unknown, where: string): JsonObject {
  if (isObject(value)) return value
  throw new Mismatch({ where, expected: 'a JSON object', got: typeOf(value) })
}
