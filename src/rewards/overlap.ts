// BLEU-4 and ROUGE-L of one caption against one reference, as the COCO caption evaluation computes them.
import { captionTokens, sequences } from './cider.ts'

/** Added to counts there, so that no division is by 0 and an order without a match is nearly 0. */
const [tiny, small] = [1e-15, 1e-9]

/** Geometric mean of the precisions of sequences of one to four words, times the penalty of a short caption. */
export function bleu4(reference: string, candidate: string): number {
  const [known, words] = [captionTokens(reference), captionTokens(candidate)]
  const counts = sequences(known)
  const correct = [0, 0, 0, 0]
  for (const [key, count] of sequences(words))
    correct[key.split(' ').length - 1]! += Math.min(count, counts.get(key) ?? 0)
  const product = correct.reduce((p, n, k) => (p * (n + tiny)) / (Math.max(0, words.length - k) + small), 1)
  const ratio = (words.length + tiny) / (known.length + small)
  return product ** 0.25 * (ratio < 1 ? Math.exp(1 - 1 / ratio) : 1)
}

/** Weight of recall in ROUGE-L there. */
const beta = 1.2

/** F-measure of the longest common subsequence of words. */
export function rougeL(reference: string, candidate: string): number {
  const [known, words] = [captionTokens(reference), captionTokens(candidate)]
  const common = commonWords(known, words)
  if (common === 0) return 0
  const [precision, recall] = [common / words.length, common / known.length]
  return ((1 + beta ** 2) * precision * recall) / (recall + beta ** 2 * precision)
}

/** Length of the longest common subsequence; one row of the table at a time. */
function commonWords(a: readonly string[], b: readonly string[]): number {
  let above = new Int32Array(b.length + 1)
  for (const word of a) {
    const row = new Int32Array(b.length + 1)
    for (let j = 1; j <= b.length; j++)
      row[j] = word === b[j - 1] ? above[j - 1]! + 1 : Math.max(above[j]!, row[j - 1]!)
    above = row
  }
  return above[b.length]!
}
