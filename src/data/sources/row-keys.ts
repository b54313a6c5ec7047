// Keys of rows, the same in any folder and shard: the `id` of the row, else its mask and text. Rows that share these also use their image.
import { createHash, type Hash } from 'node:crypto'
import { log } from '../../core/index.ts'
import type { Row } from '../parquet/file.ts'
import { answersOf, type Columns, masksOf } from './regions.ts'

/** Columns that a key is made of. Images are read only for rows with the same key. */
export function keyColumns({ id, mask, text }: Columns): string[] {
  return id === null ? [mask, text] : [id, mask, text]
}

export function rowKey(row: Row, { id, mask, text }: Columns): string {
  const own = id === null ? null : row[id]
  if (typeof own === 'string' ? own !== '' : typeof own === 'number' || typeof own === 'bigint') return String(own)
  return contentHash([masksOf(row[mask]), answersOf(row[text])]) // the same for every way to store a list of them
}

/** 64 bits of the values, whatever they are stored as. */
function contentHash(value: unknown): string {
  const hash = createHash('sha256')
  add(hash, value)
  return hash.digest('hex').slice(0, 16)
}

function add(hash: Hash, value: unknown): void {
  if (value instanceof Uint8Array) hash.update(`b${value.length} `).update(value)
  else if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    const items = Array.from(value as ArrayLike<unknown>)
    hash.update(`l${items.length} `)
    for (const item of items) add(hash, item)
  } else if (typeof value === 'object' && value !== null) {
    for (const [name, inner] of Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) {
      hash.update(`f${name} `)
      add(hash, inner)
    }
  } else hash.update(`${typeof value === 'bigint' ? 'number' : typeof value} ${String(value)} `)
}

/** Places of the values that occur more than once. */
export function repeated(length: number, at: (index: number) => string): number[] {
  const first = new Map<string, number>()
  const out = new Set<number>()
  for (let i = 0; i < length; i++) {
    const value = at(i)
    const before = first.get(value)
    if (before === undefined) first.set(value, i)
    else out.add(before).add(i)
  }
  return [...out].sort((a, b) => a - b)
}

/** Keys that several rows share, with a hash of the image added. `images` yields one per row, undefined if it is unreadable. */
export async function withImages(
  keys: readonly string[],
  images: (rows: readonly number[]) => AsyncIterable<unknown>,
): Promise<Map<number, string>> {
  const alike = repeated(keys.length, (i) => keys[i]!)
  const out = new Map<number, string>()
  const began = performance.now()
  for await (const image of images(alike)) {
    const i = alike[out.size]!
    out.set(i, image === undefined ? keys[i]! : `${keys[i]}-${contentHash(image).slice(0, 8)}`)
    if (out.size % 1000 === 0 && performance.now() - began > 5000)
      log.info(`images of ${out.size} of ${alike.length} rows compared`)
  }
  return out
}
