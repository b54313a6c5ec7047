import { Mismatch } from '../core/index.ts'
import { type Mask, maskFromDense, maskIou, toDense } from '../mask/index.ts'
import type { IouConfig } from './config.ts'

/** Values of scores or logits that were no numbers, since the start (`iou/nan`). */
export const iouCounts = { nan: 0 }

/** 0/1 of a model's output: probabilities above 0.5, logits above 0. NaN is outside, and counted. */
export function binarise(values: Float32Array | Float64Array, kind: 'probability' | 'logit'): Uint8Array {
  const threshold = kind === 'logit' ? 0 : 0.5
  const out = new Uint8Array(values.length)
  for (let i = 0; i < values.length; i++) {
    const v = values[i]!
    if (v > threshold) out[i] = 1
    else if (Number.isNaN(v)) iouCounts.nan++
  }
  return out
}

/** A mask of a model's output of shape [height, width], leading dimensions of size 1 allowed. */
export function maskFromScores(
  values: Float32Array | Float64Array,
  shape: readonly number[],
  kind: 'probability' | 'logit',
): Mask {
  const [height, width] = shape.slice(-2)
  if (height === undefined || width === undefined || shape.slice(0, -2).some((n) => n !== 1)) {
    throw new Mismatch({
      where: 'maskFromScores',
      field: 'shape',
      expected: '[height, width] or [1, height, width]',
      got: shape,
    })
  }
  return maskFromDense(binarise(values, kind), height, width)
}

/** Where a target pixel's centre falls in the source (align_corners false): left index, right index, share of the right. */
function taps(from: number, to: number): { low: Int32Array; high: Int32Array; part: Float32Array } {
  const low = new Int32Array(to)
  const high = new Int32Array(to)
  const part = new Float32Array(to)
  for (let i = 0; i < to; i++) {
    const at = Math.max(0, (i + 0.5) * (from / to) - 0.5)
    low[i] = Math.min(from - 1, Math.floor(at))
    high[i] = Math.min(from - 1, low[i]! + 1)
    part[i] = at - low[i]!
  }
  return { low, high, part }
}

/** Bilinear resize of 0/1 to a square, inside above 0.5: the prototype's way of comparing masks. */
export function resizeMaskBilinear(mask: Mask, size: number): Mask {
  if (mask.height === size && mask.width === size) return mask
  const dense = toDense(mask)
  const rows = taps(mask.height, size)
  const columns = taps(mask.width, size)
  const out = new Uint8Array(size * size)
  for (let y = 0; y < size; y++) {
    const top = rows.low[y]! * mask.width
    const bottom = rows.high[y]! * mask.width
    const v = rows.part[y]!
    for (let x = 0; x < size; x++) {
      const l = columns.low[x]!
      const r = columns.high[x]!
      const h = columns.part[x]!
      const above = dense[top + l]! * (1 - h) + dense[top + r]! * h
      const below = dense[bottom + l]! * (1 - h) + dense[bottom + r]! * h
      if (above * (1 - v) + below * v > 0.5) out[y * size + x] = 1
    }
  }
  return maskFromDense(out, size, size)
}

/** Intersection over union of the record's mask and a produced one. */
export function iouOf(given: Mask, produced: Mask, config: IouConfig): number {
  const { resolution, empty } = config
  if (resolution === 'native') return maskIou(given, produced, empty)
  return maskIou(resizeMaskBilinear(given, resolution), resizeMaskBilinear(produced, resolution), empty)
}

// Dense masks as bits: 32 pixels a word, any order, both masks the same one.

/** One bit per byte that is not 0; the last word is filled up with 0. */
export function packBits(bytes: Uint8Array): Uint32Array {
  const out = new Uint32Array(Math.ceil(bytes.length / 32))
  for (let i = 0; i < bytes.length; i++) if (bytes[i] !== 0) out[i >>> 5]! |= 1 << (i & 31)
  return out
}

function popcount(v: number): number {
  v -= (v >>> 1) & 0x55555555
  v = (v & 0x33333333) + ((v >>> 2) & 0x33333333)
  return Math.imul((v + (v >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}

export function packedIou(a: Uint32Array, b: Uint32Array, empty = 0): number {
  if (a.length !== b.length) {
    throw new Mismatch({ where: 'packedIou', expected: `two masks of ${a.length} words`, got: b.length })
  }
  let both = 0
  let either = 0
  for (let i = 0; i < a.length; i++) {
    both += popcount(a[i]! & b[i]!)
    either += popcount(a[i]! | b[i]!)
  }
  return either === 0 ? empty : both / either
}

/** Sum of the four bytes of a word. */
function lanes(word: number): number {
  return (word & 0xff) + ((word >>> 8) & 0xff) + ((word >>> 16) & 0xff) + (word >>> 24)
}

/** The same on bytes, non-zero = inside: four pixels a step, counted in the four bytes of a word. */
export function bytesIou(a: Uint8Array, b: Uint8Array, empty = 0): number {
  if (a.length !== b.length) {
    throw new Mismatch({ where: 'bytesIou', expected: `two masks of ${a.length} bytes`, got: b.length })
  }
  const aligned = (a.byteOffset | b.byteOffset) % 4 === 0
  const words = aligned ? a.length >>> 2 : 0
  const wa = new Int32Array(a.buffer, aligned ? a.byteOffset : 0, words)
  const wb = new Int32Array(b.buffer, aligned ? b.byteOffset : 0, words)
  let both = 0
  let either = 0
  for (let from = 0; from < words; from += 255) {
    const to = Math.min(words, from + 255) // a byte counts to 255
    let bothLanes = 0
    let eitherLanes = 0
    for (let i = from; i < to; i++) {
      const x = wa[i]!
      const y = wb[i]!
      const inA = ((((x & 0x7f7f7f7f) + 0x7f7f7f7f) | x) >>> 7) & 0x01010101
      const inB = ((((y & 0x7f7f7f7f) + 0x7f7f7f7f) | y) >>> 7) & 0x01010101
      bothLanes = (bothLanes + (inA & inB)) | 0
      eitherLanes = (eitherLanes + (inA | inB)) | 0
    }
    both += lanes(bothLanes)
    either += lanes(eitherLanes)
  }
  for (let i = words * 4; i < a.length; i++) {
    if (a[i] && b[i]) both++
    if (a[i] || b[i]) either++
  }
  return either === 0 ? empty : both / either
}
