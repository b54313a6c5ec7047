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
import { Mismatch } from '../../core/index.ts'

export const posNames = ['noun', 'verb', 'adj', 'adv'] as const
export type PosName = (typeof posNames)[number]

export interface Table {
  /** Where key i starts in `bytes`; one entry more than keys. A key ends one byte before the next one starts. */
  keyStart: Uint32Array
  flags: Uint8Array
  /** Where the synonyms of key i start in `bytes`. */
  synonymStart: Uint32Array
  exceptions: ReadonlyMap<string, readonly string[]>[]
  bytes: Uint8Array
}

export const magic = 0x334e5752 // 'RWN3'
export const digestAt = 20
export const headerBytes = digestAt + 32

export function digest(parts: Uint8Array[]): Buffer {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return hash.digest()
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
