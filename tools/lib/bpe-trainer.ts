// Trains a byte-level BPE vocabulary on a small corpus: counts the pre-tokenised pieces, then merges the most frequent pair repeatedly.
// Ties go to the pair that sorts first, so the same lines give the same file.
import { assert, Mismatch } from '../../src/core/index.ts'
import { baseVocabulary } from '../../src/text/byte-level.ts'
import { hubTokenizer } from '../../src/text/hub.ts'
import { addedToken, qwen2TokenizerJson, type TokenizerJson } from '../../src/text/tokenizer-files.ts'

interface BpeOptions {
  /** Maximum number of merges; fewer if no pair is frequent enough. */
  maxMerges: number
  /** Minimum number of occurrences of a pair. Default 2. */
  minCount?: number
  /** Appended after the merges, in this order, all special. */
  addedTokens: readonly string[]
}

interface Piece {
  parts: string[]
  count: number
}

/** The object of a tokenizer.json in Qwen2's form. */
export function trainByteLevelBpe(lines: Iterable<string>, options: BpeOptions): TokenizerJson {
  if (new Set(options.addedTokens).size !== options.addedTokens.length) {
    throw new Mismatch({
      where: 'tokenizer training',
      field: 'addedTokens',
      expected: 'no repetition',
      got: options.addedTokens,
    })
  }
  const pieces = countPieces(lines, options.addedTokens)
  const base = baseVocabulary()
  const merges: [string, string][] = []
  while (merges.length < options.maxMerges) {
    const pair = mostFrequentPair(pieces, options.minCount ?? 2)
    if (!pair) break
    merges.push(pair)
    for (const piece of pieces) mergePair(piece, pair)
  }
  return assemble(base, merges, options.addedTokens)
}

function assemble(base: string[], merges: [string, string][], added: readonly string[]): TokenizerJson {
  // Two merges may give the same string ("ab"+"c", "a"+"bc"): one vocabulary entry.
  const tokens = [...new Set([...base, ...merges.map(([a, b]) => a + b)])]
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]))
  return qwen2TokenizerJson(
    vocab,
    merges,
    added.map((content, i) => addedToken(tokens.length + i, content)),
  )
}

/** Pieces of the corpus in the byte alphabet with their counts, by the same pre-tokeniser that will encode. */
function countPieces(lines: Iterable<string>, added: readonly string[]): Piece[] {
  const base = Object.fromEntries(baseVocabulary().map((token, id) => [token, id]))
  const hub = hubTokenizer(qwen2TokenizerJson(base, [], []), {}, 'tokenizer training')
  assert(hub.pre_tokenizer !== null, 'the Qwen2 form has a pre-tokeniser')
  const cut = new RegExp(added.map((token) => token.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')).join('|') || '(?!)')
  const counts = new Map<string, number>()
  for (const line of lines) {
    for (const section of line.normalize('NFC').split(cut)) {
      if (section === '') continue
      for (const piece of hub.pre_tokenizer(section)) counts.set(piece, (counts.get(piece) ?? 0) + 1)
    }
  }
  return [...counts].map(([text, count]) => ({ parts: [...text], count }))
}

function mostFrequentPair(pieces: readonly Piece[], minCount: number): [string, string] | undefined {
  const counts = new Map<string, number>()
  for (const { parts, count } of pieces) {
    for (let i = 0; i + 1 < parts.length; i++) {
      const key = `${parts[i]} ${parts[i + 1]}` // a space is never part of the byte alphabet
      counts.set(key, (counts.get(key) ?? 0) + count)
    }
  }
  let best: string | undefined
  let bestCount = minCount - 1
  for (const [key, count] of counts) {
    if (count > bestCount || (count === bestCount && best !== undefined && key < best)) {
      best = key
      bestCount = count
    }
  }
  return best === undefined ? undefined : (best.split(' ') as [string, string])
}

function mergePair(piece: Piece, [left, right]: readonly [string, string]): void {
  const { parts } = piece
  if (!parts.includes(left)) return
  const out: string[] = []
  for (let i = 0; i < parts.length; i++) {
    if (parts[i] === left && parts[i + 1] === right) {
      out.push(left + right)
      i++
    } else {
      out.push(parts[i]!)
    }
  }
  piece.parts = out
}
