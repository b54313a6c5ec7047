// Builds assets/wordnet-3.0.bin.br from the WordNet 3.0 dictionary files (Debian: package wordnet-base).
// usage: node --import tsx scripts/gen-wordnet.ts [dictionary folder] [output file]
// The same dictionary gives the same uncompressed bytes; its SHA-256 is printed. Layout: src/rewards/meteor/table.ts.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants } from 'node:zlib'
import { atomicWrite, Mismatch, sha256 } from '../src/core/index.ts'
import { type PosName, posNames } from '../src/rewards/meteor/table.ts'
import { encodeTable, type TableSource } from './lib/wordnet-table.ts'

function contentLines(path: string): string[] {
  // Lines that start with a space are the licence.
  return readFileSync(path, 'latin1')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith(' '))
}

/** Names that a lower-case reference stem can equal: lower-case, one word, without the (a), (p), (ip) marker. */
function usefulNames(line: string): string[] {
  const fields = line.split(' ')
  const count = Number.parseInt(fields[3]!, 16)
  const names = Array.from({ length: count }, (_, i) => fields[4 + 2 * i]!.replace(/\((a|p|ip)\)$/, ''))
  return names.filter((name) => !name.includes('_') && name === name.toLowerCase())
}

function readNames(folder: string, pos: PosName): Map<string, string[]> {
  const lines = contentLines(join(folder, `data.${pos}`))
  return new Map(lines.map((line) => [line.slice(0, 8), usefulNames(line)]))
}

function readSynonyms(folder: string, pos: PosName): Map<string, Set<string>> {
  const path = join(folder, `index.${pos}`)
  const namesAt = readNames(folder, pos)
  const out = new Map<string, Set<string>>()
  for (const line of contentLines(path)) {
    const fields = line.trim().split(' ')
    const offsets = fields.slice(fields.length - Number(fields[2]))
    const names = new Set<string>()
    for (const offset of offsets) {
      const found = namesAt.get(offset)
      if (!found)
        throw new Mismatch({ where: path, field: fields[0]!, expected: 'an offset of the data file', got: offset })
      for (const name of found) names.add(name)
    }
    out.set(fields[0]!, names)
  }
  return out
}

/** A repeated key replaces the earlier one, as in NLTK's reader. */
function readExceptions(folder: string, pos: PosName): Map<string, string[]> {
  const lines = contentLines(join(folder, `${pos}.exc`)).map((line) => line.trim().split(/\s+/))
  return new Map(lines.map(([inflected, ...bases]) => [inflected!, bases]))
}

function main(): void {
  const root = join(dirname(fileURLToPath(import.meta.url)), '..')
  const folder = process.argv[2] ?? '/usr/share/wordnet'
  const target = process.argv[3] ?? join(root, 'assets', 'wordnet-3.0.bin.br')
  const source: TableSource = {
    synonyms: posNames.map((pos) => readSynonyms(folder, pos)),
    exceptions: posNames.map((pos) => readExceptions(folder, pos)),
  }
  const bytes = encodeTable(source)
  const packed = brotliCompressSync(bytes, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 11,
      [constants.BROTLI_PARAM_LGWIN]: 22,
      [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
    },
  })
  atomicWrite(target, packed)
  const keys = source.synonyms.reduce((n, of) => n + of.size, 0)
  const exceptions = source.exceptions.map((of) => of.size).join(' / ')
  console.log(`${keys} (lemma, part of speech) keys, exceptions ${exceptions}`)
  console.log(`${bytes.length} bytes, sha256 ${sha256(bytes)}, compressed ${packed.length}`)
}

main()
