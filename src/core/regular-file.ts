import { lstatSync, readFileSync, realpathSync, type Stats, statSync } from 'node:fs'
import { join, sep } from 'node:path'
import { expecting, Mismatch, messageOf } from './errors.ts'

/** Devices and pipes have no end: only what is stored may be read whole or by place. */
export function regularFile(path: string): Stats {
  const stats = expecting({ where: path, expected: 'a readable file' }, () => statSync(path))
  if (stats.isFile()) return stats
  throw new Mismatch({ where: path, expected: 'a regular file', got: kindOf(stats) })
}

/** The real path of a stored file below `folder`. Folders of other people are data: no link of theirs is followed out of them. */
export function requireBelow(folder: string, name: string, maxBytes = Number.POSITIVE_INFINITY): string {
  const where = join(folder, name)
  const { size } = regularFile(where)
  const path = realBelow(folder, where)
  if (size <= maxBytes) return path
  throw new Mismatch({ where, expected: `a file of at most ${maxBytes} bytes`, got: `${size} bytes` })
}

function realBelow(folder: string, where: string): string {
  const path = realpathSync(where)
  if (path.startsWith(realpathSync(folder) + sep)) return path
  throw new Mismatch({ where, expected: 'a part of this folder', got: 'a link that leads out of it' })
}

/** A subfolder that will be written to: missing, or really in the folder. */
export function requireOwnFolder(folder: string, name: string): void {
  const where = join(folder, name)
  if (lstatSync(where, { throwIfNoEntry: false })) realBelow(folder, where)
}

/** As `requireBelow`, or null: missing, not a regular file, not readable, too large, or not in the folder. */
export function fileBelow(folder: string, name: string, maxBytes?: number): string | null {
  try {
    return requireBelow(folder, name, maxBytes)
  } catch {
    return null
  }
}

function kindOf(stats: Stats): string {
  if (stats.isDirectory()) return 'a folder'
  if (stats.isFIFO()) return 'a pipe'
  return stats.isCharacterDevice() || stats.isBlockDevice() ? 'a device' : 'a socket or something else'
}

/** A read that the system refused (a disk that fails, a network share that does not respond), with the place. */
export function unreadable(path: string, offset: number, length: number, error: unknown): unknown {
  if (error instanceof Mismatch) return error
  return new Mismatch(
    { where: path, field: `bytes at ${offset}`, expected: `${length} readable bytes`, got: messageOf(error) },
    { cause: error },
  )
}

function readWhole<T>(path: string, read: () => T): T {
  const { size } = regularFile(path)
  try {
    return read()
  } catch (error) {
    throw unreadable(path, 0, size, error)
  }
}

/** All bytes of a stored file. */
export function readBytes(path: string): Buffer {
  return readWhole(path, () => readFileSync(path))
}

/** The text of a stored file, however large it is, without a byte order mark. */
export function readText(path: string): string {
  return readWhole(path, () => withoutMark(readFileSync(path, 'utf8')))
}

/** Editors of Windows put a byte order mark before a text. */
export const withoutMark = (text: string): string => text.replace(/^\ufeff/, '')

const most = 256 * 1024 * 1024

/** The text of a settings file (JSON, YAML, a list of merges). */
export function readTextFile(path: string, maxBytes = most): string {
  const { size } = regularFile(path)
  if (size > maxBytes)
    throw new Mismatch({ where: path, expected: `a file of at most ${maxBytes} bytes`, got: `${size} bytes` })
  return readText(path)
}
