// Writes the WordNet table; src/rewards/meteor/table.ts describes the format and reads it.
import { assert } from '../../src/core/index.ts'
import { digest, digestAt, headerBytes, magic } from '../../src/rewards/meteor/table.ts'

/** What the generator reads from the dictionary, per part of speech in the order of posNames. */
export interface TableSource {
  synonyms: ReadonlyMap<string, ReadonlySet<string>>[]
  exceptions: ReadonlyMap<string, readonly string[]>[]
}

function pushVarint(out: number[], value: number): void {
  while (value > 127) {
    out.push((value & 127) | 128)
    value >>>= 7
  }
  out.push(value)
}

function byCode(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

export function encodeTable(source: TableSource): Uint8Array {
  const keys = [...new Set(source.synonyms.flatMap((of) => [...of.keys()]))].sort(byCode)
  const idOf = new Map(keys.map((key, id) => [key, id]))
  const flags = new Uint8Array(keys.length)
  const synonyms: number[] = []
  for (const [id, key] of keys.entries()) {
    for (const [pos, of] of source.synonyms.entries()) {
      const names = of.get(key)
      if (!names) continue
      flags[id]! |= (1 << pos) | (names.has(key) ? 16 << pos : 0)
      pushIds(
        synonyms,
        [...names].filter((name) => name !== key).map((name) => idOf.get(name)),
      )
    }
  }
  const keyText = Buffer.from(keys.map((key) => `${key}\n`).join(''), 'latin1')
  const exceptionText = Buffer.from(source.exceptions.map(exceptionLines).join(''), 'latin1')
  const header = Buffer.alloc(headerBytes)
  const counts = [magic, keys.length, keyText.length, synonyms.length, exceptionText.length]
  for (const [i, count] of counts.entries()) header.writeUInt32LE(count, 4 * i)
  const body = [keyText, flags, Buffer.from(synonyms), exceptionText]
  header.set(digest(body), digestAt)
  return Buffer.concat([header, ...body])
}

function pushIds(out: number[], ids: (number | undefined)[]): void {
  let last = 0
  pushVarint(out, ids.length)
  for (const id of ids.sort((a, b) => a! - b!)) {
    assert(id !== undefined, 'every one-word lower-case name is a key of the index')
    pushVarint(out, id - last)
    last = id
  }
}

function exceptionLines(of: ReadonlyMap<string, readonly string[]>, pos: number): string {
  const lines = [...of].map(([inflected, bases]) => `${[pos, inflected, ...bases].join(' ')}\n`)
  return lines.sort(byCode).join('')
}
