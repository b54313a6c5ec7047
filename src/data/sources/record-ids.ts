// Names of records. A key does not depend on folders and shards, so that copies and other shards of a set have the same held-out part.
import type { DataConfig } from '../config.ts'
import type { RecordSource, Source } from '../example.ts'
import { repeated } from './row-keys.ts'

/** The source's name is a folder's. */
export function keyOf(records: RecordSource, index: number): string {
  if (records.key) return records.key(index)
  const id = records.id(index)
  return id.startsWith(`${records.name}/`) ? id.slice(records.name.length + 1) : id
}

type RecordIds = Pick<Source, 'id' | 'key' | 'place'> & { warnings: string[] }

/** Ids are used once: of records with the same key the later ones get a number. All of them are in the same part. */
export function recordIds(records: RecordSource, { splitBy }: Pick<DataConfig, 'splitBy'>): RecordIds {
  const place = (index: number) => records.id(index)
  if (splitBy === 'place') return { id: place, key: place, place, warnings: [] }
  const key = (index: number) => keyOf(records, index)
  const base = (index: number) => {
    return records.part ? `${records.part(index)}/${key(index)}` : key(index)
  }
  const alike = repeated(records.length, base)
  const numbered = new Map(numbers(alike, base).map((n, i) => [alike[i]!, n]))
  const id = (index: number) => {
    const number = numbered.get(index) ?? 1
    return number === 1 ? base(index) : `${base(index)}#${number}`
  }
  const more = [...numbered.values()].filter((n) => n > 1).length
  const text = `${records.name}: ${more} records have the id or the content of another one; they are in the same part as that one`
  return { id, key, place, warnings: more > 0 ? [text] : [] }
}

/** 1, 2, ... among those with the same text. */
function numbers(indices: readonly number[], text: (index: number) => string): number[] {
  const counts = new Map<string, number>()
  return indices.map((index) => {
    const n = (counts.get(text(index)) ?? 0) + 1
    counts.set(text(index), n)
    return n
  })
}
