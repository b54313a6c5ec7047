// Choosing the next token: scores -> warpers -> draw, and log-probabilities of chosen tokens. B rows, V vocabulary.
// Warpers run in transformers' order on float32 scores (float64 stays float64).
import { Mismatch } from '../core/index.ts'
import { searchsorted, type Tensor, tensor, where, zeros } from '../tensor/index.ts'

export interface SamplingSettings {
  /** Above 0; greedy choice is greedyTokens, not temperature 0. */
  temperature: number
  /** 0: off. */
  topK: number
  /** 1: off. */
  topP: number
  /** null: off. */
  minP: number | null
  /** 1: off. */
  repetitionPenalty: number
}

export const plainSampling: SamplingSettings = { temperature: 1, topK: 0, topP: 1, minP: null, repetitionPenalty: 1 }

/** Whether the sampler draws from another distribution than softmax(logits / temperature), which the loss scores. */
export function truncates(s: SamplingSettings): boolean {
  return s.topK > 0 || s.topP < 1 || (s.minP !== null && s.minP > 0) || s.repetitionPenalty !== 1
}

/** At least float32: bfloat16 spacing at logits of 8 to 16 is 0.06. */
export function wide(t: Tensor): Tensor {
  return t.dtype === 'float64' || t.dtype === 'float32' ? t : t.to('float32')
}

const off = Number.NEGATIVE_INFINITY

/** All warpers in order; each is skipped at its neutral value. `seen` (seenTokens) is needed by the repetition penalty. */
export function warpScores(logits: Tensor, settings: SamplingSettings, seen?: Tensor): Tensor {
  let scores = wide(logits) // [B, V]
  if (settings.repetitionPenalty !== 1) {
    if (!seen)
      throw new Mismatch({ where: 'warpScores', field: 'seen', expected: 'the ids of each row so far', got: 'none' })
    scores = penalizeSeen(scores, seen, settings.repetitionPenalty)
  }
  if (settings.temperature !== 1) scores = scores.div(positive(settings.temperature))
  if (settings.topK > 0) scores = keepTopK(scores, settings.topK)
  if (settings.topP < 1) scores = keepTopP(scores, settings.topP)
  if (settings.minP !== null && settings.minP > 0) scores = keepMinP(scores, settings.minP)
  return scores
}

function positive(temperature: number): number {
  if (temperature > 0) return temperature
  const hint = 'greedy choice is a separate mode'
  throw new Mismatch({ where: 'sampling', field: 'temperature', expected: 'above 0', got: temperature, hint })
}

/** True at [row, id] for every id of the row's context; later ids are added with scatter_(1, ids, true). */
export function seenTokens(contexts: readonly ArrayLike<number>[], vocabulary: number, device = 'cpu'): Tensor {
  const data = new Uint8Array(contexts.length * vocabulary)
  contexts.forEach((ids, row) => {
    for (let i = 0; i < ids.length; i++) data[row * vocabulary + inVocabulary(ids[i]!, vocabulary)] = 1
  })
  return tensor(data, [contexts.length, vocabulary], { dtype: 'bool', device }) // [B, V]
}

function inVocabulary(id: number, vocabulary: number): number {
  if (Number.isInteger(id) && id >= 0 && id < vocabulary) return id
  throw new Mismatch({ where: 'seenTokens', field: 'id', expected: `0 to ${vocabulary - 1}`, got: id })
}

/** Positive scores of seen ids are divided by the penalty, negative ones multiplied; once per id. */
function penalizeSeen(scores: Tensor, seen: Tensor, penalty: number): Tensor {
  const lowered = where(scores.lt(0), scores.mul(penalty), scores.div(penalty))
  return where(seen, lowered, scores)
}

/** Scores below the k-th largest go; ties with it stay, so more than k ids can remain. */
function keepTopK(scores: Tensor, k: number): Tensor {
  const { values } = scores.topk(Math.min(k, scores.size(-1)))
  const kth = values.slice({ dim: -1, start: values.size(-1) - 1 }) // [B, 1]
  return scores.maskedFill(scores.lt(kth), off)
}

/** The smallest set of largest probabilities that reaches p; the largest always stays. */
export function keepTopP(scores: Tensor, p: number): Tensor {
  const { values, indices } = scores.sort({ stable: true, dim: -1, descending: false })
  const mass = values.softmax(-1).cumsum(-1)
  const vocabulary = scores.size(-1)
  const dropped = mass.slice({ dim: -1, end: vocabulary - 1 }).le(1 - p) // the last is the largest
  const sorted = zeros([...scores.shape], { dtype: 'bool', device: scores.device })
  sorted.slice({ dim: -1, end: vocabulary - 1 }).copy_(dropped)
  return scores.maskedFill(sorted.scatter(-1, indices, sorted), off)
}

/** Probabilities below q times the largest go. */
function keepMinP(scores: Tensor, q: number): Tensor {
  const probabilities = scores.softmax(-1)
  const least = probabilities.amax({ dim: [-1], keepdim: true }).mul(q)
  return scores.maskedFill(probabilities.lt(least), off)
}

/** These ids are never drawn: image placeholders, [SEG] in captions. `ids` is an int64 tensor [n]. */
export function suppress(scores: Tensor, ids: Tensor): Tensor {
  return scores.indexFill(-1, ids, off)
}

/**
 * For each row the smallest id whose cumulative probability, in vocabulary order and float64, exceeds u. Never an id of
 * probability 0. A row without a distribution (NaN, +inf, all -inf) gives -1: the caller must stop there.
 */
export function sampleTokens(scores: Tensor, u: Float64Array): Tensor {
  const rows = scores.size(0)
  if (u.length !== rows)
    throw new Mismatch({ where: 'sampleTokens', field: 'u', expected: `${rows} numbers`, got: u.length })
  return drawTokens(scores, tensor(u, [rows, 1], { device: scores.device }))
}

/** The same with the numbers in a tensor, float64 [B, 1]: nothing waits for the device. */
export function drawTokens(scores: Tensor, target: Tensor): Tensor {
  const mass = scores.to('float64').softmax(-1).cumsum(-1) // [B, V]
  const total = mass.slice({ dim: -1, start: mass.size(-1) - 1 }).contiguous() // [B, 1], 1 up to rounding
  const above = searchsorted(mass, target, { right: true })
  const last = searchsorted(mass, total) // of positive probability, for u above the rounded total
  return above.minimum(last).maskedFill(total.isfinite().logicalNot(), -1).squeeze(-1) // [B]
}

/** The id of the largest score, the lowest id on ties; -1 for a row with NaN, +inf, or nothing left. */
export function greedyTokens(scores: Tensor): Tensor {
  const { values } = scores.max(-1)
  return scores.argmax({ dim: -1 }).maskedFill(values.isfinite().logicalNot(), -1) // [B]
}

/** log softmax(logits / temperature) at the given ids. logits [..., V], ids [...] int64; differentiable. */
export function tokenLogps(logits: Tensor, ids: Tensor, temperature = 1): Tensor {
  // not x - logsumexp(x): at logits near 1000 that difference has lost its digits
  return scaled(logits, temperature).logSoftmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
}

/** Entropy of softmax(logits / temperature) over the vocabulary, in nats. [..., V] -> [...]; differentiable. */
export function tokenEntropies(logits: Tensor, temperature = 1): Tensor {
  const logps = scaled(logits, temperature).logSoftmax(-1)
  return logps.exp().mul(logps).sum(-1).neg()
}

function scaled(logits: Tensor, temperature: number): Tensor {
  return temperature === 1 ? wide(logits) : wide(logits).div(positive(temperature))
}
