import { readFileSync, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { addFolder, atomicWrite, cacheFolder, log, messageOf, sha256, tryJson } from '../core/index.ts'

/** Name, size and time of a file; if one of them changes, the content counts as changed. */
function fileStamp(path: string): string {
  const { size, mtimeMs } = statSync(path)
  return `${resolve(path)} ${size} ${mtimeMs}`
}

interface Stored<T> {
  stamp: string
  value: T
}

export interface CacheKey {
  /** Name and version of the index; a new layout gets a new version. */
  kind: string
  /** Files that are indexed. */
  files: readonly string[]
  /** Settings it depends on. */
  settings?: string
}

/**
 * An index of files, read from the cache if they are unchanged, else built and stored. If the cache cannot be read or
 * written, a warning is logged and the index is built.
 */
export async function cachedIndex<T>(key: CacheKey, build: () => Promise<T>): Promise<T> {
  const stamp = sha256(key.files.map(fileStamp).join('\n'))
  const name = sha256(`${key.kind}\n${key.settings ?? ''}\n${key.files.map((f) => resolve(f)).join('\n')}`).slice(0, 32)
  const folder = join(cacheFolder(), 'index') // never beside the data, which may be read-only
  const path = join(folder, `${name}.json`)
  const stored = readStored<T>(path)
  if (stored?.stamp === stamp) return stored.value
  if (stored) log.debug(`index of ${basename(key.files[0] ?? key.kind)} is stale: building it again`)
  const value = await build()
  try {
    addFolder(folder)
    atomicWrite(path, JSON.stringify({ stamp, value } satisfies Stored<T>))
  } catch (error) {
    log.warn(`index not stored in ${folder}: ${messageOf(error)}`)
  }
  return value
}

function readStored<T>(path: string): Stored<T> | null {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') log.warn(`index cache: ${messageOf(error)}`)
    return null
  }
  const stored = tryJson(text)
  if (stored === undefined) log.warn(`index cache: ${path} is damaged and will be written again`)
  return (stored ?? null) as Stored<T> | null
}

/** Numbers of an index as text: 8 bytes each, exact to 2^53. */
export const packNumbers = (values: Iterable<number>): string =>
  Buffer.from(Float64Array.from(values).buffer).toString('base64')

export function unpackNumbers(text: string): Float64Array {
  const bytes = Buffer.from(text, 'base64')
  const values = new Float64Array(bytes.length / 8)
  Buffer.from(values.buffer).set(bytes)
  return values
}
