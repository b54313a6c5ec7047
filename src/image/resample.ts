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

/** For each output position: the first input it reads and `taps` weights. */
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
  return packAxis(rows, inSize)
}

/** One number of taps for all outputs, so that the loops have no inner bounds: zeros before or after change no sum. */
function packAxis(rows: readonly { lo: number; weights: number[] }[], inSize: number): Axis {
  const taps = rows.reduce((most, row) => Math.max(most, row.weights.length), 1)
  const first = new Int32Array(rows.length)
  const weights = new Int32Array(rows.length * taps)
  rows.forEach(({ lo, weights: own }, x) => {
    first[x] = Math.min(lo, inSize - taps)
    weights.set(own, x * taps + lo - first[x]!)
  })
  return { taps, first, weights }
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

/** Columns: src [height, inWidth, 3] -> out [height, outWidth, 3]. */
function alongRows(src: Uint8Array, height: number, inWidth: number, outWidth: number, axis: Axis): Uint8Array {
  const { taps, first, weights } = axis
  const out = new Uint8ClampedArray(height * outWidth * 3)
  let o = 0
  for (let y = 0; y < height; y++) {
    const row = y * inWidth * 3
    for (let x = 0, w = 0; x < outWidth; x++) {
      let p = row + first[x]! * 3
      let r = half
      let g = half
      let b = half
      for (const end = w + taps; w < end; w++, p += 3) {
        const weight = weights[w]!
        r = (r + Math.imul(src[p]!, weight)) | 0
        g = (g + Math.imul(src[p + 1]!, weight)) | 0
        b = (b + Math.imul(src[p + 2]!, weight)) | 0
      }
      out[o] = r >> bits
      out[o + 1] = g >> bits
      out[o + 2] = b >> bits
      o += 3
    }
  }
  return new Uint8Array(out.buffer)
}

/** Rows: src [inHeight, width, 3] -> out [outHeight, width, 3]. */
function alongColumns(src: Uint8Array, outHeight: number, rowBytes: number, axis: Axis): Uint8Array {
  const { taps, first, weights } = axis
  const out = new Uint8ClampedArray(outHeight * rowBytes)
  const sums = new Int32Array(rowBytes)
  for (let y = 0; y < outHeight; y++) {
    sums.fill(half)
    for (let k = 0; k < taps; k++) {
      const weight = weights[y * taps + k]!
      const from = (first[y]! + k) * rowBytes
      if (weight !== 0) for (let i = 0; i < rowBytes; i++) sums[i] = (sums[i]! + Math.imul(src[from + i]!, weight)) | 0
    }
    const to = y * rowBytes
    for (let i = 0; i < rowBytes; i++) out[to + i] = sums[i]! >> bits
  }
  return new Uint8Array(out.buffer)
}

/** Resizes as Pillow's `Image.resize`: bit-equal. An axis whose size stays is not touched. */
export function resize(image: RgbImage, width: number, height: number, filter: Filter): RgbImage {
  checkImage(image, 'resize')
  checkSize(width, height, 'resize')
  if (!(filter in filters)) throw new Mismatch({ where: 'resize', expected: 'bicubic or bilinear', got: filter })
  let data = image.data
  if (width !== image.width)
    data = alongRows(data, image.height, image.width, width, axisOf(image.width, width, filter))
  if (height !== image.height) data = alongColumns(data, height, width * 3, axisOf(image.height, height, filter))
  return { width, height, data: data === image.data ? data.slice() : data }
}
