// The WordNet table as bytes: which (lemma, part of speech) keys exist, their one-word lower-case synonyms, the exception
// lists of morphy. Keys with `_` and keys without synonyms stay: finding one ends morphy's search.
//
//   u32 magic, number of keys, bytes of keys, bytes of synonyms, bytes of exceptions (little endian)
//   SHA-256 of everything after it
//   keys        sorted by byte, each followed by '\n'
//   flags       one byte per key: bits 0-3 the key exists as noun, verb, adjective, adverb; bits 4-7 it names itself there
//   synonyms    per key, per part of speech it has: varint count, then varint gaps of the rising key numbers, without itself
//   exceptions  lines 'N inflected base base...\n', N the part of speech
import { createHash } from 'node:crypto'
import { assert, Mismatch } from '../../core/index.ts'

export const posNames = ['noun', 'verb', 'adj', 'adv'] as const
export type PosName = (typeof posNames)[number]

/** What the generator reads from the dictionary, per part of speech in the order of posNames. */
export interface TableSource {
  synonyms: ReadonlyMap<string, ReadonlySet<string>>[]
  exceptions: ReadonlyMap<string, readonly string[]>[]
}

export interface Table {
  /** Where key i starts in `bytes`; one entry more than keys. A key ends one byte before the next one starts. */
  keyStart: Uint32Array
  flags: Uint8Array
  /** Where the synonyms of key i start in `bytes`. */
  synonymStart: Uint32Array
  exceptions: ReadonlyMap<string, readonly string[]>[]
  bytes: Uint8Array
}

const magic = 0x334e5752 // 'RWN3'
const digestAt = 20
const headerBytes = digestAt + 32

function digest(parts: Uint8Array[]): Buffer {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return hash.digest()
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

/** `where` names the file in errors. */
export function decodeTable(bytes: Uint8Array, where: string): Table {
  checkWhole(bytes, where)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const numKeys = view.getUint32(4, true)
  const flagsAt = headerBytes + view.getUint32(8, true)
  const synonymsAt = flagsAt + numKeys
  const exceptionsAt = synonymsAt + view.getUint32(12, true)
  const flags = bytes.subarray(flagsAt, synonymsAt)
  return {
    keyStart: findKeys(bytes, numKeys),
    flags,
    synonymStart: findSynonyms(bytes, flags, synonymsAt),
    exceptions: readExceptions(bytes.subarray(exceptionsAt)),
    bytes,
  }
}

/** The digest is checked because a damaged table would give other scores without any sign. */
function checkWhole(bytes: Uint8Array, where: string): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const known = bytes.length >= headerBytes && view.getUint32(0, true) === magic
  if (known && digest([bytes.subarray(headerBytes)]).equals(bytes.subarray(digestAt, headerBytes))) return
  const expected = 'the WordNet table written by scripts/gen-wordnet.ts'
  const got = known ? 'a damaged table' : `${bytes.length} bytes of something else`
  throw new Mismatch({ where, expected, got, hint: 'reinstall the package or run scripts/gen-wordnet.ts' })
}

function findKeys(bytes: Uint8Array, numKeys: number): Uint32Array {
  const starts = new Uint32Array(numKeys + 1)
  let at = headerBytes
  for (let id = 0; id < numKeys; id++) {
    starts[id] = at
    while (bytes[at++] !== 10);
  }
  starts[numKeys] = at
  return starts
}

/** Walks the varints once. Counts and gaps are read alike; only a byte below 128 ends a number. */
function findSynonyms(bytes: Uint8Array, flags: Uint8Array, at: number): Uint32Array {
  const starts = new Uint32Array(flags.length)
  for (let id = 0; id < flags.length; id++) {
    starts[id] = at
    for (let left = flags[id]! & 15; left > 0; left &= left - 1) {
      let count = bytes[at]! & 127
      for (let shift = 7; bytes[at++]! > 127; shift += 7) count |= (bytes[at]! & 127) << shift
      while (count > 0) if (bytes[at++]! < 128) count--
    }
  }
  return starts
}

function readExceptions(bytes: Uint8Array): Map<string, readonly string[]>[] {
  const maps = posNames.map(() => new Map<string, readonly string[]>())
  for (const line of Buffer.from(bytes).toString('latin1').split('\n')) {
    const [pos, inflected, ...bases] = line.split(' ')
    if (inflected !== undefined) maps[Number(pos)]!.set(inflected, bases)
  }
  return maps
}

/** The key numbers of one list of synonyms; the lists of a key follow each other in the order of posNames. */
export function readSynonymIds(table: Table, id: number, pos: number): number[] {
  const { bytes } = table
  const flags = table.flags[id]!
  let at = table.synonymStart[id]!
  const next = () => {
    let value = bytes[at]! & 127
    for (let shift = 7; bytes[at++]! > 127; shift += 7) value |= (bytes[at]! & 127) << shift
    return value
  }
  for (let before = flags & ((1 << pos) - 1); before > 0; before &= before - 1) {
    for (let count = next(); count > 0; count--) next()
  }
  const ids = (flags >> (4 + pos)) & 1 ? [id] : []
  let last = 0
  for (let count = next(); count > 0; count--) {
    last += next()
    ids.push(last)
  }
  return ids
}
