import { Mismatch } from '../core/index.ts'
import { checkImage, checkSize, type RgbImage } from './image.ts'
import { type Kernel, kernelWith, weightBits } from './kernel.ts'

// Pillow's 8-bit resampler, bit for bit: weights in doubles, rounded to fixed point; one pass over columns, rounded and
// clipped to 8 bits, then one over rows. When shrinking, the filter widens by the scale.
//
// 'bicubic-16' is torchvision's antialiased bicubic on bytes: the same, with weights of as many bits as 16-bit integers hold.

export type Filter = 'bicubic' | 'bilinear' | 'bicubic-16'

const filters: Record<Filter, { support: number; at: (t: number) => number }> = {
  bilinear: { support: 1, at: (t) => (Math.abs(t) < 1 ? 1 - Math.abs(t) : 0) },
  bicubic: { support: 2, at: cubic },
  'bicubic-16': { support: 2, at: cubic },
}

function cubic(t: number): number {
  const a = -0.5
  const x = Math.abs(t)
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a
  return 0
}

/** For each output position: the first input it reads and `taps` weights with `weightBits` fractional bits; zeros fill up. */
export interface Axis {
  readonly taps: number
  readonly first: Int32Array
  readonly weights: Int32Array
}

/** Weights of the inputs lo, lo + 1, ... for the output whose centre lies at `centre`; their sum is 1. */
function weightsAt(centre: number, lo: number, hi: number, inverse: number, filter: (t: number) => number): number[] {
  const raw: number[] = []
  let sum = 0
  for (let k = lo; k < hi; k++) {
    const w = filter((k - centre + 0.5) * inverse)
    raw.push(w)
    sum += w
  }
  return sum === 0 ? raw : raw.map((w) => w / sum)
}

/** Rounded to `bits` fractional bits, then brought to the kernel's fixed point. */
function fixedPoint(weight: number, bits: number): number {
  const scaled = weight * (1 << bits)
  return Math.trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5) * (1 << (weightBits - bits))
}

/** The most fractional bits with which the largest weight stays a 16-bit integer. */
function bitsOf16(largest: number): number {
  let bits = 0
  while (bits < weightBits && Math.trunc(0.5 + largest * 2 ** (bits + 1)) < 1 << 15) bits++
  return bits
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
  const taps = rows.reduce((most, row) => Math.max(most, row.weights.length), 1)
  const weights = new Int32Array(outSize * taps)
  const largest = rows.reduce((most, row) => Math.max(most, ...row.weights), 0)
  const bits = name === 'bicubic-16' ? bitsOf16(largest) : weightBits
  rows.forEach((row, x) => {
    weights.set(
      row.weights.map((w) => fixedPoint(w, bits)),
      x * taps,
    )
  })
  return { taps, first: Int32Array.from(rows, (row) => row.lo), weights }
}

/** A dataset has few sizes: the last axes are kept. Entries are 4 * outSize * taps bytes, so the memory is small. */
const axes = new Map<string, Axis>()
const maxAxes = 64

export function axisOf(inSize: number, outSize: number, filter: Filter): Axis {
  const key = `${filter} ${inSize} ${outSize}`
  const known = axes.get(key)
  if (known) return known
  const axis = computeAxis(inSize, outSize, filter)
  if (axes.size >= maxAxes) axes.delete(axes.keys().next().value!)
  axes.set(key, axis)
  return axis
}

/** Byte addresses of what one resize keeps in the kernel's memory. */
type Layout = ReturnType<typeof layOut>

/** Images have spare bytes at the end: padding weights of zero read there, and a line's last store writes there. */
function layOut(image: RgbImage, width: number, height: number, across: Axis, down: Axis) {
  const spare = 16
  const rowBytes = width * 3
  const src = 0
  const wide = src + image.data.length + across.taps * 3 + spare
  const out = wide + (image.height + down.taps) * rowBytes + spare
  const first = Math.ceil((out + height * rowBytes + spare) / 4) * 4
  const weights = first + 4 * Math.max(width, Math.ceil(rowBytes / 4))
  const total = weights + 4 * Math.max(across.weights.length, down.weights.length)
  if (total < 2 ** 32 - 2 ** 17) return { src, wide, out, first, weights, total }
  const got = `${image.width} x ${image.height} to ${width} x ${height}`
  throw new Mismatch({ where: 'resize', expected: 'images that fit 4 GiB together', got })
}

/** Columns: [height, inWidth, 3] -> [height, outWidth, 3]. */
function alongRows({ line, memory }: Kernel, image: RgbImage, at: Layout, axis: Axis): void {
  const outBytes = axis.first.length * 3
  new Int32Array(memory.buffer, at.first).set(axis.first.map((pixel) => pixel * 3))
  new Int32Array(memory.buffer, at.weights).set(axis.weights)
  for (let y = 0; y < image.height; y++) {
    const out = at.wide + y * outBytes
    line(at.src + y * image.width * 3, out, out + outBytes, at.first, at.weights, 4 * axis.taps, 4 * axis.taps, 3, 3)
  }
}

/** Rows: [inHeight, width, 3] at `from` -> [outHeight, width, 3]; channels are treated alike here. */
function alongColumns({ line, memory }: Kernel, rowBytes: number, from: number, at: Layout, axis: Axis): void {
  const { taps, first, weights } = axis
  new Int32Array(memory.buffer, at.first).set(Int32Array.from({ length: Math.ceil(rowBytes / 4) }, (_, i) => 4 * i))
  new Int32Array(memory.buffer, at.weights).set(weights)
  for (let y = 0; y < first.length; y++) {
    const out = at.out + y * rowBytes
    const ownWeights = at.weights + 4 * taps * y
    line(from + first[y]! * rowBytes, out, out + rowBytes, at.first, ownWeights, 0, 4 * taps, rowBytes, 4)
  }
}

/** Resizes as Pillow's `Image.resize`: bit-equal. An axis whose size stays is not touched. */
export function resize(image: RgbImage, width: number, height: number, filter: Filter): RgbImage {
  checkImage(image, 'resize')
  checkSize(width, height, 'resize')
  if (!(filter in filters))
    throw new Mismatch({ where: 'resize', expected: Object.keys(filters).join(', '), got: filter })
  if (width === image.width && height === image.height) return { width, height, data: image.data.slice() }
  const across = axisOf(image.width, width, filter)
  const down = axisOf(image.height, height, filter)
  const at = layOut(image, width, height, across, down)
  const kernel = kernelWith(at.total)
  kernel.memory.set(image.data, at.src)
  let result = at.src
  if (width !== image.width) {
    alongRows(kernel, image, at, across)
    result = at.wide
  }
  if (height !== image.height) {
    alongColumns(kernel, width * 3, result, at, down)
    result = at.out
  }
  return { width, height, data: kernel.memory.slice(result, result + width * height * 3) }
}
