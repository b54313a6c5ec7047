// CIDEr-D (Vedantam et al. 2015, as the COCO caption evaluation computes it): 10 times the cosine of TF-IDF vectors of n-grams, n from
// 1 to 4. Counts are clipped to the reference's, and a Gaussian penalises a difference of lengths.
const longest = 4
const sigma = 6

/** Signs that the COCO evaluation drops after tokenising. */
const dropped = new Set(`'' ' \`\` \` . ? ! , : - -- ... ; ( ) [ ] { } "`.split(' '))

/**
 * Words as the Penn Treebank tokeniser cuts them, lower case, without punctuation. The COCO evaluation runs Stanford's Java
 * tokeniser; ours follows its rules for contractions, possessives, hyphens and signs, not its rare ones (abbreviations, URLs).
 */
export function captionTokens(text: string): string[] {
  return text
    .toLowerCase()
    .replace(/[\u2018\u2019]/g, "'")
    .replace(/[\u201c\u201d]/g, '"')
    .replace(/\.{3,}/g, ' ... ')
    .replace(/--+/g, ' -- ')
    .replace(/([^\s\p{L}\p{N}'.,\-/])/gu, ' $1 ')
    .replace(/([.,])(?!\p{N})/gu, ' $1 ')
    .replace(/(?<!\p{N})([.,])/gu, ' $1 ')
    .replace(/\bcannot\b/g, 'can not')
    .replace(/(\p{L})n't\b/gu, "$1 n't")
    .replace(/(\p{L})'(s|re|ve|ll|d|m)\b/gu, "$1 '$2")
    .replace(/(^|\s)'+(?=\S)(?!(s|re|ve|ll|d|m)\b)/g, "$1 ' ")
    .replace(/'(?=\s|$)/g, " ' ")
    .split(/\s+/)
    .filter((token) => token !== '' && !dropped.has(token))
}

export type Counts = Map<string, number>

/** Every sequence of one to four words, and how often it occurs. */
export function sequences(tokens: readonly string[]): Counts {
  const counts: Counts = new Map()
  for (let n = 1; n <= longest; n++)
    for (let i = 0; i + n <= tokens.length; i++) increment(counts, tokens.slice(i, i + n).join(' '))
  return counts
}

function increment(counts: Counts, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1)
}

const lengthOf = (key: string) => key.split(' ').length

interface Vector {
  /** By length of the sequence: sequence -> weight. */
  weights: Map<string, number>[]
  norms: number[]
  /** Number of word pairs, which the reference takes for the length. */
  length: number
}

/** In how many documents a sequence of words occurs, and the logarithm of how many there are. */
export interface CiderCorpus {
  frequency: ReadonlyMap<string, number>
  logItems: number
}

/** A document is the references of one item. */
export function ciderCorpus(documents: readonly (readonly string[])[]): CiderCorpus {
  const frequency = new Map<string, number>()
  for (const references of documents) {
    const seen = new Set(references.flatMap((text) => [...sequences(captionTokens(text)).keys()]))
    for (const key of seen) increment(frequency, key)
  }
  return { frequency, logItems: Math.log(documents.length) }
}

/** A score for each item; without a corpus it is the references of all items together. */
export function ciderD(
  items: readonly { candidate: string; references: readonly string[] }[],
  { frequency, logItems }: CiderCorpus = ciderCorpus(items.map((item) => item.references)),
): number[] {
  const vector = (text: string) => vectorOf(sequences(captionTokens(text)), frequency, logItems)
  return items.map(({ candidate, references }) => {
    const ours = vector(candidate)
    const sums = references.map((reference) => similarity(ours, vector(reference)))
    return references.length === 0 ? 0 : (10 * sums.reduce((a, b) => a + b, 0)) / references.length
  })
}

function vectorOf(counts: Counts, frequency: ReadonlyMap<string, number>, logItems: number): Vector {
  const weights = Array.from({ length: longest }, () => new Map<string, number>())
  const norms = new Array<number>(longest).fill(0)
  let length = 0
  for (const [key, count] of counts) {
    const n = lengthOf(key) - 1
    const weight = count * (logItems - Math.log(Math.max(1, frequency.get(key) ?? 0)))
    weights[n]!.set(key, weight)
    norms[n]! += weight ** 2
    if (n === 1) length += count
  }
  return { weights, norms: norms.map(Math.sqrt), length }
}

/** Mean over the lengths of the clipped cosine, times the length penalty. */
function similarity(ours: Vector, reference: Vector): number {
  const penalty = Math.exp(-((ours.length - reference.length) ** 2) / (2 * sigma ** 2))
  let sum = 0
  for (let n = 0; n < longest; n++) {
    let dot = 0
    for (const [key, weight] of ours.weights[n]!) {
      const other = reference.weights[n]!.get(key) ?? 0
      dot += Math.min(weight, other) * other
    }
    const norms = ours.norms[n]! * reference.norms[n]!
    sum += penalty * (norms === 0 ? dot : dot / norms)
  }
  return sum / longest
}
