import { Mismatch } from '../core/index.ts'
import { checkSize, type Mask } from './mask.ts'

/** COCO run lengths as stored in JSON: `size` is [height, width]; `counts` compressed (string, or its bytes) or plain. */
export interface Rle {
  readonly size: readonly number[]
  readonly counts: string | Uint8Array | readonly number[]
}

/** The hints are stable codes: readers of datasets count rejects by them. */
type Problem = 'rle-overflow' | 'rle-short' | 'rle-truncated' | 'rle-char' | 'rle-empty' | 'rle-type'

function problem(where: string, hint: Problem, expected: string, got: unknown): Mismatch {
  return new Mismatch({ where, field: 'counts', expected, got, hint })
}

/** Six groups of five bits hold runs below 2^29, and keep 32-bit shifts exact. */
const maxGroups = 6

/** The signed differences that the characters encode, five bits each, low first, bit 32 = more, bit 16 of the last = sign. */
function parseCounts(text: string, where: string): Float64Array {
  const counts = new Float64Array(text.length)
  let n = 0
  for (let at = 0; at < text.length; n++) {
    let value = 0
    let groups = 0
    for (let more = true; more; ) {
      if (at >= text.length)
        throw problem(where, 'rle-truncated', 'a complete last value', JSON.stringify(text.slice(-8)))
      const c = text.charCodeAt(at++) - 48
      if (c < 0 || c > 63)
        throw problem(where, 'rle-char', "characters '0' to 'o'", `${JSON.stringify(text[at - 1])} at ${at - 1}`)
      if (groups === maxGroups) throw problem(where, 'rle-overflow', 'runs below 2^29', `a longer value at ${at - 1}`)
      value |= (c & 31) << (5 * groups++)
      more = (c & 32) !== 0
      if (!more && c & 16) value |= -1 << (5 * groups)
    }
    // differences start at the fourth value: the format says i > 2, not i >= 2
    counts[n] = n > 2 ? value + counts[n - 2]! : value
  }
  return counts.subarray(0, n)
}

/** Drops empty runs inside, so that equal masks have equal counts. */
function canonical(counts: ArrayLike<number>): Uint32Array {
  const out = new Uint32Array(counts.length)
  out[0] = counts[0]!
  let n = 1
  for (let i = 1; i < counts.length; i++) {
    const joinsLast = (n - 1) % 2 === i % 2
    if (joinsLast) out[n - 1]! += counts[i]!
    else if (counts[i]! > 0) out[n++] = counts[i]!
  }
  return n === out.length ? out : out.slice(0, n)
}

/** A mask of plain run lengths, checked: whole numbers, not negative, together height * width. */
export function maskFromRuns(counts: ArrayLike<number>, height: number, width: number, where = 'RLE'): Mask {
  checkSize(height, width, where)
  const total = height * width
  if (counts.length === 0) throw problem(where, 'rle-empty', `runs of ${total} pixels together`, 'no runs')
  let sum = 0
  for (let i = 0; i < counts.length; i++) {
    const n = counts[i]!
    if (!Number.isInteger(n) || n < 0) throw problem(where, 'rle-overflow', 'whole run lengths of at least 0', n)
    sum += n
  }
  const expected = `runs of ${height} x ${width} = ${total} pixels together`
  if (sum > total) throw problem(where, 'rle-overflow', expected, sum)
  if (sum < total) throw problem(where, 'rle-short', expected, sum)
  return { height, width, counts: canonical(counts) }
}

/** Reads either COCO form; every defect is a Mismatch whose hint is a code (rle-short, rle-overflow, ...). */
export function decodeRle(rle: Rle, where = 'RLE'): Mask {
  if (typeof rle !== 'object' || rle === null)
    throw new Mismatch({ where, expected: 'an object with size and counts', got: rle, hint: 'rle-type' })
  const { size, counts } = rle
  if (!Array.isArray(size) || size.length !== 2)
    throw new Mismatch({ where, field: 'size', expected: '[height, width]', got: size, hint: 'rle-type' })
  const [height, width] = size as [number, number]
  checkSize(height, width, where)
  if (typeof counts === 'string') return maskFromRuns(parseCounts(counts, where), height, width, where)
  if (counts instanceof Uint8Array)
    return maskFromRuns(parseCounts(Buffer.from(counts).toString('latin1'), where), height, width, where)
  if (Array.isArray(counts)) return maskFromRuns(counts, height, width, where)
  throw problem(where, 'rle-type', 'a string or a list of numbers', counts)
}

/** Strings of masks that were encoded, and the masks of what was returned: noise has 100,000 runs and several readers. */
const encoded = new WeakMap<Mask, string>()
const sources = new WeakMap<object, Mask>()

/** The mask whose encoded form this object is; it need not be decoded. */
export function sourceOf(rle: Readonly<Rle>): Mask | undefined {
  const mask = sources.get(rle)
  return mask && encoded.get(mask) === rle.counts ? mask : undefined
}

/** The compressed form, character for character as pycocotools writes it. */
export function encodeRle(mask: Mask): { size: [number, number]; counts: string } {
  const counts = encoded.get(mask) ?? encodeCounts(mask.counts)
  const rle: { size: [number, number]; counts: string } = { size: [mask.height, mask.width], counts }
  encoded.set(mask, counts)
  sources.set(rle, mask)
  return rle
}

function encodeCounts(counts: Uint32Array): string {
  const codes = Buffer.allocUnsafe(counts.length * 7) // 7 groups of five bits hold any difference
  let length = 0
  for (let i = 0; i < counts.length; i++) {
    let x = i > 2 ? counts[i]! - counts[i - 2]! : counts[i]!
    for (let more = true; more; ) {
      let c = x & 31
      x >>= 5
      more = c & 16 ? x !== -1 : x !== 0
      if (more) c |= 32
      codes[length++] = c + 48
    }
  }
  return codes.toString('latin1', 0, length)
}
