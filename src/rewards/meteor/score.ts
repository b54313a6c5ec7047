import { parseWith } from '../../config/index.ts'
import { MeteorConfig } from '../config.ts'
import { type Alignment, align } from './align.ts'
import type { MeteorTokenizer } from './tokens.ts'

export interface MeteorOptions {
  /** Weight of precision against recall, 0 to 1; default 0.9. */
  alpha?: number
  /** Exponent of the fragmentation, 0 or more; default 3. */
  beta?: number
  /** Largest penalty for fragmentation, 0 to 1; default 0.5. */
  gamma?: number
  /** Default 'whitespace', as in the method's Python code: punctuation stays on its word. */
  tokenizer?: MeteorTokenizer
}

/** METEOR with the counts it is computed from. */
export interface MeteorDetail extends Alignment {
  score: number
  precision: number
  recall: number
  fMean: number
  /** gamma * (chunks / matches) ^ beta */
  penalty: number
}

const defaults = MeteorConfig.parse({})

/** The error of a product rounded to double, by splitting both factors into halves (Dekker). */
function productError(a: number, b: number, product: number): number {
  const aWide = 134217729 * a
  const bWide = 134217729 * b
  const aHigh = aWide - (aWide - a)
  const bHigh = bWide - (bWide - b)
  const aLow = a - aHigh
  const bLow = b - bHigh
  return aHigh * bHigh - product + aHigh * bLow + aLow * bHigh + aLow * bLow
}

/** Correctly rounded third power: equals the C library's pow, which V8's own does not in the last bit. */
export function cube(x: number): number {
  const square = x * x
  const product = square * x
  return product + (productError(square, x, product) + productError(x, x, square) * x)
}

function penaltyOf({ chunks, matches }: Alignment, { beta, gamma }: MeteorConfig): number {
  const fragmentation = chunks / matches
  return gamma * (beta === 3 ? cube(fragmentation) : fragmentation ** beta)
}

/** METEOR as nltk.translate.meteor_score computes it, bit for bit. Not symmetric: the reference comes first. */
export function meteor(reference: string, hypothesis: string, options?: MeteorOptions): number {
  return meteorDetail(reference, hypothesis, options).score
}

/** The same with everything that led to the score. */
export function meteorDetail(reference: string, hypothesis: string, options?: MeteorOptions): MeteorDetail {
  const settings = options ? parseWith(MeteorConfig, options, 'METEOR options') : defaults
  const found = align(reference, hypothesis, settings.tokenizer)
  if (found.matches === 0) return { ...found, score: 0, precision: 0, recall: 0, fMean: 0, penalty: 0 }
  const precision = found.matches / found.hypLength
  const recall = found.matches / found.refLength
  const fMean = (precision * recall) / (settings.alpha * precision + (1 - settings.alpha) * recall)
  const penalty = penaltyOf(found, settings)
  return { ...found, score: (1 - penalty) * fMean, precision, recall, fMean, penalty }
}
