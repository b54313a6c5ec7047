// The three matching stages of NLTK's METEOR: equal tokens, equal stems, synonyms.
import { pushTo } from '../../core/index.ts'
import { porterStem } from './porter.ts'
import { type MeteorTokenizer, tokenize } from './tokens.ts'
import { wordNet } from './wordnet.ts'

export interface Alignment {
  hypLength: number
  refLength: number
  /** Matches per stage: exact, stem, synonym. */
  stages: [number, number, number]
  matches: number
  chunks: number
}

const none = -1
/** Captions repeat their words, so stems and synonyms are cached; a policy that writes noise must not fill the memory. */
const maxCached = 1 << 15

function cached<T>(compute: (word: string) => T): (word: string) => T {
  const known = new Map<string, T>()
  return (word) => {
    const found = known.get(word)
    if (found !== undefined) return found
    if (known.size >= maxCached) known.clear()
    const value = compute(word)
    known.set(word, value)
    return value
  }
}

const stemOf = cached(porterStem)
const idOf = cached((word) => wordNet().idOf(word))
const synonymsOf = cached((word) => wordNet().synonymIds(word))

/** Tokens of both sides, and what is matched so far. */
interface Pairing {
  hyp: string[]
  ref: string[]
  /** Per hypothesis token the index of its reference token, or none. */
  partner: number[]
  /** Per reference token. */
  isTaken: boolean[]
}

export function align(reference: string, hypothesis: string, tokenizer: MeteorTokenizer): Alignment {
  const [hyp, ref] = [tokenize(hypothesis, tokenizer), tokenize(reference, tokenizer)]
  const pairing: Pairing = { hyp, ref, partner: hyp.map(() => none), isTaken: ref.map(() => false) }
  const exact = matchEqual(pairing)
  const rest = Math.min(hyp.length, ref.length) - exact
  const stem = rest > 0 ? matchStems(pairing) : 0
  const synonym = rest > stem ? matchSynonyms(pairing) : 0
  return {
    hypLength: hyp.length,
    refLength: ref.length,
    stages: [exact, stem, synonym],
    matches: exact + stem + synonym,
    chunks: countChunks(pairing.partner),
  }
}

/** From the end, as in NLTK: each free hypothesis token takes the last free reference token that is equal. */
function matchEqual({ hyp, ref, partner, isTaken }: Pairing): number {
  const places = new Map<string, number[]>()
  for (const [j, word] of ref.entries()) {
    if (!isTaken[j]) pushTo(places, word, j)
  }
  let matches = 0
  for (let i = hyp.length - 1; i >= 0; i--) {
    const j = partner[i] === none ? places.get(hyp[i]!)?.pop() : undefined
    if (j === undefined) continue
    partner[i] = j
    isTaken[j] = true
    matches++
  }
  return matches
}

/** Replaces the free tokens by their stems. */
function matchStems(pairing: Pairing): number {
  pairing.hyp = pairing.hyp.map((word, i) => (pairing.partner[i] === none ? stemOf(word) : word))
  pairing.ref = pairing.ref.map((word, j) => (pairing.isTaken[j] ? word : stemOf(word)))
  return matchEqual(pairing)
}

/** On the stems of the stage before; the synonyms are those of the hypothesis. */
function matchSynonyms({ hyp, ref, partner, isTaken }: Pairing): number {
  const numbered = ref.map((word, j) => ({ j, id: isTaken[j] ? none : idOf(word) }))
  const free = numbered.filter(({ id }) => id >= 0)
  let matches = 0
  for (let i = hyp.length - 1; i >= 0 && free.length > 0; i--) {
    if (partner[i] !== none) continue
    const synonyms = synonymsOf(hyp[i]!)
    const at = synonyms.size === 0 ? none : free.findLastIndex(({ id }) => synonyms.has(id))
    if (at === none) continue
    partner[i] = free.splice(at, 1)[0]!.j
    matches++
  }
  return matches
}

/** Runs of matches that advance by one on both sides; 0 when nothing matches. */
function countChunks(partner: readonly number[]): number {
  let chunks = 0
  let [previous, expected] = [none, none]
  for (const [i, j] of partner.entries()) {
    if (j === none) continue
    if (previous !== i - 1 || j !== expected || chunks === 0) chunks++
    previous = i
    expected = j + 1
  }
  return chunks
}
