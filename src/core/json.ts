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

/** The value of a JSON text; undefined if it is none. */
export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
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
  return expecting({ where, expected }, () => JSON.parse(text))
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
  return texts.flatMap((text, i) => (text.trim() === '' ? [] : [parseLine(text, `${path}: line ${i + 1}`)]))
}

function parseLine(text: string, where: string): JsonLine {
  const expected = 'a JSON object'
  const value = parseJson(text, where, expected)
  if (isObject(value)) return { value, where }
  throw new Mismatch({ where, expected, got: typeOf(value) })
}

/** A JSON object from a file of settings, with its keys untouched. */
export function readJsonObject(path: string): JsonObject {
  const value = parseJson(readTextFile(path), path)
  if (isObject(value)) return value
  throw new Mismatch({ where: path, expected: 'a JSON object', got: typeOf(value) })
}
