import { readFileSync } from 'node:fs'
import { Mismatch, messageOf } from './errors.ts'
import { readTextFile, regularFile } from './regular-file.ts'
import { refuseStandIn } from './stand-in.ts'

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The type of a JSON value, for messages. */
export function typeOf(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'a list' : typeof value
}

function parsed(text: string, where: string): unknown {
  const expected = 'a file of JSON'
  refuseStandIn(Buffer.from(text.slice(0, 512)), where, expected)
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new Mismatch({ where, expected, got: messageOf(error) }, { cause: error })
  }
}

/** What a file of JSON holds, however large it is. */
export function readJson(path: string): unknown {
  regularFile(path)
  return parsed(readFileSync(path, 'utf8'), path)
}

/** A JSON object from a file of settings, with its keys untouched. */
export function readJsonObject(path: string): Record<string, unknown> {
  const value = parsed(readTextFile(path), path)
  if (isObject(value)) return value
  throw new Mismatch({ where: path, expected: 'a JSON object', got: typeOf(value) })
}
