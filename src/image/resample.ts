import { Mismatch } from '../core/index.ts'
import { checkImage, checkSize, type RgbImage } from './image.ts'

// Pillow's 8-bit resampler, bit for bit: weights in doubles, rounded to fixed point; one pass over columns, rounded and
// clipped to 8 bits, then one over rows. When shrinking, the filter widens by the scale.

export type Filter = 'bicubic' | 'bilinear'

/** Fractional bits of a weight: 32 - 8 (sample) - 2 (sign and overshoot). Sums then fit 32 bits. */
const bits = 22
const half = 1 << (bits - 1)

const filters: Record<Filter, { support: number; at: (t: number) => number }> = {
  bilinear: { support: 1, at: (t) => (Math.abs(t) < 1 ? 1 - Math.abs(t) : 0) },
  bicubic: { support: 2, at: cubic },
}

function cubic(t: number): number {
  const a = -0.5
  const x = Math.abs(t)
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a
  return 0
}

/** For each output position: the first input it reads and `taps` weights; taps is a multiple of 4, zeros fill up. */
interface Axis {
  readonly taps: number
  readonly first: Int32Array
  readonly weights: Int32Array
}

/** Fixed-point weights of the inputs lo, lo + 1, ... for the output whose centre lies at `centre`. */
function weightsAt(centre: number, lo: number, hi: number, inverse: number, filter: (t: number) => number): number[] {
  const raw: number[] = []
  let sum = 0
  for (let k = lo; k < hi; k++) {
    const w = filter((k - centre + 0.5) * inverse)
    raw.push(w)
    sum += w
  }
  return raw.map((w) => {
    const scaled = (sum === 0 ? w : w / sum) * (1 << bits)
    return Math.trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5)
  })
}

function computeAxis(inSize: number, outSize: number, name: Filter): Axis {
  const filter = filters[name]
  const scale = inSize / outSize
  const widened = Math.max(scale, 1)
  const support = filter.support * widened
  const rows: { lo: number; weights: number[] }[] = []
  for (let x = 0; x < outSize; x++) {
    const centre = (x + 0.5) * scale
    const lo = Math.max(0, Math.trunc(centre - support + 0.5))
    const hi = Math.min(inSize, Math.trunc(centre + support + 0.5))
    rows.push({ lo, weights: weightsAt(centre, lo, hi, 1 / widened, filter.at) })
  }
  const taps = 4 * Math.ceil(rows.reduce((most, row) => Math.max(most, row.weights.length), 1) / 4)
  const weights = new Int32Array(outSize * taps)
  rows.forEach((row, x) => {
    weights.set(row.weights, x * taps)
  })
  return { taps, first: Int32Array.from(rows, (row) => row.lo), weights }
}

/** A dataset has few sizes: the last axes are kept. Entries are 4 * outSize * taps bytes, so the memory is small. */
const axes = new Map<string, Axis>()
const maxAxes = 64

function axisOf(inSize: number, outSize: number, filter: Filter): Axis {
  const key = `${filter} ${inSize} ${outSize}`
  const known = axes.get(key)
  if (known) return known
  const axis = computeAxis(inSize, outSize, filter)
  if (axes.size >= maxAxes) axes.delete(axes.keys().next().value!)
  axes.set(key, axis)
  return axis
}

// The hot loops of image preparation. A pixel is one 32-bit word, red lowest: one load a tap instead of three; four taps at
// a time; 32-bit integers throughout. Buffers have spare words at the end, which the filling zero weights read.

function packPixels({ width, height, data }: RgbImage, spare: number): Int32Array {
  const out = new Int32Array(width * height + spare)
  const n = width * height
  for (let i = 0, p = 0; i < n; i++, p += 3) out[i] = data[p]! | (data[p + 1]! << 8) | (data[p + 2]! << 16)
  return out
}

function unpackPixels(words: Int32Array, n: number): Uint8Array {
  const out = new Uint8Array(n * 3)
  for (let i = 0, p = 0; i < n; i++, p += 3) {
    const word = words[i]!
    out[p] = word
    out[p + 1] = word >> 8
    out[p + 2] = word >> 16
  }
  return out
}

/** Fixed point to a sample, clipped to 0..255 without a branch. */
function clip(sum: number): number {
  const v = sum >> bits
  const low = v & ~(v >> 31)
  return (low | ((255 - low) >> 31)) & 255
}

/** Four weighted low bytes; with words shifted down, those of another channel. */
function dot(p0: number, p1: number, p2: number, p3: number, w0: number, w1: number, w2: number, w3: number): number {
  return (Math.imul(p0 & 255, w0) + Math.imul(p1 & 255, w1) + Math.imul(p2 & 255, w2) + Math.imul(p3 & 255, w3)) | 0
}

/** Columns: src [height, inWidth] -> out [height, outWidth]. */
function alongRows(src: Int32Array, out: Int32Array, height: number, inWidth: number, axis: Axis): void {
  const { taps, first, weights } = axis
  let o = 0
  for (let y = 0; y < height; y++) {
    let w = 0
    for (let x = 0; x < first.length; x++) {
      let p = y * inWidth + first[x]!
      let r = half
      let g = half
      let b = half
      for (const end = w + taps; w < end; w += 4, p += 4) {
        const w0 = weights[w]!
        const w1 = weights[w + 1]!
        const w2 = weights[w + 2]!
        const w3 = weights[w + 3]!
        const p0 = src[p]!
        const p1 = src[p + 1]!
        const p2 = src[p + 2]!
        const p3 = src[p + 3]!
        r = (r + dot(p0, p1, p2, p3, w0, w1, w2, w3)) | 0
        g = (g + dot(p0 >> 8, p1 >> 8, p2 >> 8, p3 >> 8, w0, w1, w2, w3)) | 0
        b = (b + dot(p0 >> 16, p1 >> 16, p2 >> 16, p3 >> 16, w0, w1, w2, w3)) | 0
      }
      out[o++] = clip(r) | (clip(g) << 8) | (clip(b) << 16)
    }
  }
}

/** Rows: src [inHeight, width] -> out [outHeight, width]. Sums over more than four rows wait in `sums` [3, width]. */
function alongColumns(src: Int32Array, out: Int32Array, width: number, axis: Axis): void {
  const { taps, first, weights } = axis
  const sums = new Int32Array(3 * width)
  for (let y = 0; y < first.length; y++) {
    const from = first[y]! * width
    const last = taps - 4
    sums.fill(half)
    for (let k = 0; k < last; k += 4) addFourRows(src, from + k * width, weights, y * taps + k, sums)
    lastFourRows(src, from + last * width, weights, y * taps + last, sums, out, y * width)
  }
}

function addFourRows(src: Int32Array, from: number, weights: Int32Array, w: number, sums: Int32Array): void {
  const width = sums.length / 3
  const [w0, w1, w2, w3] = weights.subarray(w, w + 4) as unknown as [number, number, number, number]
  for (let x = 0, p = from; x < width; x++, p++) {
    const p0 = src[p]!
    const p1 = src[p + width]!
    const p2 = src[p + 2 * width]!
    const p3 = src[p + 3 * width]!
    sums[x] = sums[x]! + dot(p0, p1, p2, p3, w0, w1, w2, w3)
    sums[x + width] = sums[x + width]! + dot(p0 >> 8, p1 >> 8, p2 >> 8, p3 >> 8, w0, w1, w2, w3)
    sums[x + 2 * width] = sums[x + 2 * width]! + dot(p0 >> 16, p1 >> 16, p2 >> 16, p3 >> 16, w0, w1, w2, w3)
  }
}

function lastFourRows(
  src: Int32Array,
  from: number,
  weights: Int32Array,
  w: number,
  sums: Int32Array,
  out: Int32Array,
  to: number,
): void {
  const width = sums.length / 3
  const [w0, w1, w2, w3] = weights.subarray(w, w + 4) as unknown as [number, number, number, number]
  for (let x = 0, p = from; x < width; x++, p++) {
    const p0 = src[p]!
    const p1 = src[p + width]!
    const p2 = src[p + 2 * width]!
    const p3 = src[p + 3 * width]!
    const r = sums[x]! + dot(p0, p1, p2, p3, w0, w1, w2, w3)
    const g = sums[x + width]! + dot(p0 >> 8, p1 >> 8, p2 >> 8, p3 >> 8, w0, w1, w2, w3)
    const b = sums[x + 2 * width]! + dot(p0 >> 16, p1 >> 16, p2 >> 16, p3 >> 16, w0, w1, w2, w3)
    out[to + x] = clip(r) | (clip(g) << 8) | (clip(b) << 16)
  }
}

/** Resizes as Pillow's `Image.resize`: bit-equal. An axis whose size stays is not touched. */
export function resize(image: RgbImage, width: number, height: number, filter: Filter): RgbImage {
  checkImage(image, 'resize')
  checkSize(width, height, 'resize')
  if (!(filter in filters)) throw new Mismatch({ where: 'resize', expected: 'bicubic or bilinear', got: filter })
  if (width === image.width && height === image.height) return { width, height, data: image.data.slice() }
  const across = axisOf(image.width, width, filter)
  const down = axisOf(image.height, height, filter)
  let words = packPixels(image, Math.max(across.taps, down.taps * width))
  if (width !== image.width) {
    const wide = new Int32Array((image.height + down.taps) * width)
    alongRows(words, wide, image.height, image.width, across)
    words = wide
  }
  if (height !== image.height) {
    const high = new Int32Array(height * width)
    alongColumns(words, high, width, down)
    words = high
  }
  return { width, height, data: unpackPixels(words, width * height) }
}
