import { Mismatch } from '../core/index.ts'

/**
 * A region of an image of `height` x `width` pixels, as COCO run lengths: pixels in column-major order
 * (index = x * height + y), runs alternate outside, inside, outside, ...; the first may be 0, no other is.
 * Equal masks have equal counts. Sum of counts = height * width.
 */
export interface Mask {
  readonly height: number
  readonly width: number
  readonly counts: Uint32Array
}

export function checkSize(height: number, width: number, where: string): void {
  const whole = Number.isInteger(height) && Number.isInteger(width)
  if (whole && height > 0 && width > 0 && height * width < 2 ** 31) return
  const expected = 'height and width of at least 1, below 2^31 pixels together'
  throw new Mismatch({ where, field: 'size', expected, got: [height, width], hint: 'zero-size' })
}

/** Runs of row-major bits; any non-zero byte is inside. */
export function maskFromDense(bits: Uint8Array, height: number, width: number): Mask {
  checkSize(height, width, 'maskFromDense')
  const expected = `${height} x ${width} = ${height * width} bytes`
  if (bits.length !== height * width)
    throw new Mismatch({ where: 'maskFromDense', field: 'bits', expected, got: bits.length })
  // Bytes are compared with the row above, four at once, as they are stored. A run ends where they differ, or between two columns.
  const ends: number[] = []
  const total = height * width
  for (let x = 0; x < width; x++) {
    const before = x === 0 ? 0 : bits[total - width + x - 1]
    if ((bits[x] !== 0) !== (before !== 0)) ends.push(x * height)
  }
  const aligned = width % 4 === 0 && bits.byteOffset % 4 === 0
  const words = aligned ? new Uint32Array(bits.buffer, bits.byteOffset, total / 4) : null
  for (let at = width; at < total; at++) {
    if (words && at % 4 === 0 && words[at >> 2] === words[(at - width) >> 2]) {
      at += 3
      continue
    }
    const here = bits[at]
    const above = bits[at - width]
    if (here !== above && (here === 0 || above === 0)) ends.push((at % width) * height + Math.floor(at / width))
  }
  const counts = Uint32Array.from([...ends, total]).sort()
  for (let i = counts.length - 1; i > 0; i--) counts[i]! -= counts[i - 1]!
  return { height, width, counts }
}

/** Row-major 0/1. */
export function toDense(mask: Mask): Uint8Array {
  const { height, width, counts } = mask
  const out = new Uint8Array(height * width)
  let q = 0
  for (let i = 0; i < counts.length; i++) {
    const end = q + counts[i]!
    if (i % 2 === 1) fillRun(out, height, width, q, end)
    q = end
  }
  return out
}

/** Sets the pixels of column-major indices [from, to), one column segment at a time. */
function fillRun(out: Uint8Array, height: number, width: number, from: number, to: number): void {
  let x = Math.floor(from / height)
  let y = from - x * height
  let left = to - from
  while (left > 0) {
    const n = Math.min(left, height - y)
    for (let at = y * width + x, last = at + n * width; at < last; at += width) out[at] = 1
    left -= n
    y = 0
    x++
  }
}

/** Whether a pixel is inside. */
export function maskHas({ counts, height }: Mask, [x, y]: readonly [number, number]): boolean {
  let run = 0
  for (let left = x * height + y; left >= counts[run]!; run++) left -= counts[run]!
  return run % 2 === 1
}

/** Whether no pixel is inside. */
export const isEmptyMask = ({ counts }: Mask): boolean => counts.length < 2

/** Number of pixels inside. */
export function maskArea(mask: Mask): number {
  let area = 0
  for (let i = 1; i < mask.counts.length; i += 2) area += mask.counts[i]!
  return area
}

/** Smallest box [x, y, width, height] that holds the region; four zeros for an empty mask, as pycocotools. */
export function maskBox(mask: Mask): [number, number, number, number] {
  const { height, counts } = mask
  let left = Infinity
  let top = Infinity
  let right = -1
  let bottom = -1
  let q = 0
  for (let i = 0; i + 1 < counts.length; i += 2) {
    const first = q + counts[i]!
    q = first + counts[i + 1]!
    const x0 = Math.floor(first / height)
    const x1 = Math.floor((q - 1) / height)
    const crosses = x1 > x0 // a run over a column edge touches the bottom of one column and the top of the next
    left = Math.min(left, x0)
    right = Math.max(right, x1)
    top = Math.min(top, crosses ? 0 : first - x0 * height)
    bottom = Math.max(bottom, crosses ? height - 1 : q - 1 - x1 * height)
  }
  return right < 0 ? [0, 0, 0, 0] : [left, top, right - left + 1, bottom - top + 1]
}

function checkSameSize(a: Mask, b: Mask, where: string): void {
  if (a.height === b.height && a.width === b.width) return
  throw new Mismatch({
    where,
    field: 'size',
    expected: `two masks of one size, the first is ${a.height} x ${a.width}`,
    got: `${b.height} x ${b.width}`,
    hint: 'bring the prediction to the size of the ground truth first',
  })
}

/** Intersection over union as a double; `empty` is the value when both masks are empty. */
export function maskIou(a: Mask, b: Mask, empty = 0): number {
  const both = maskArea(combine('maskIou', a, b, (x, y) => x & y))
  const either = maskArea(a) + maskArea(b) - both
  return either === 0 ? empty : both / either
}

/** Runs of the pixels for which `rule(inside a, inside b)` is 1: a walk over the two run lists. */
function combine(where: string, a: Mask, b: Mask, rule: (inA: number, inB: number) => number): Mask {
  checkSameSize(a, b, where)
  const counts: number[] = []
  const total = a.height * a.width
  let i = 0
  let j = 0
  let endA = a.counts[0] ?? 0
  let endB = b.counts[0] ?? 0
  let inside = 0
  let start = 0
  for (let q = 0; q < total; ) {
    const next = Math.min(endA, endB)
    const value = rule(i & 1, j & 1)
    if (next > q && value !== inside) {
      counts.push(q - start)
      start = q
      inside = value
    }
    q = next
    if (endA === q && q < total) endA += a.counts[++i]!
    if (endB === q && q < total) endB += b.counts[++j]!
  }
  counts.push(total - start)
  return { height: a.height, width: a.width, counts: Uint32Array.from(counts) }
}

/** Pixels of any of the masks. */
export function maskUnion(first: Mask, ...rest: readonly Mask[]): Mask {
  return rest.reduce((a, b) => combine('maskUnion', a, b, (x, y) => x | y), first)
}

/** Pixels of all of the masks. */
export function maskIntersection(first: Mask, ...rest: readonly Mask[]): Mask {
  return rest.reduce((a, b) => combine('maskIntersection', a, b, (x, y) => x & y), first)
}

/** Pixels of a that are not in b. */
export function maskDifference(a: Mask, b: Mask): Mask {
  return combine('maskDifference', a, b, (x, y) => x & ~y)
}

/** Source index of torch's `interpolate(mode='nearest')`: floor(to * from/size) in float32. */
function nearestIndex(to: number, inSize: number, outSize: number): number {
  return Math.min(Math.floor(Math.fround(to * Math.fround(inSize / outSize))), inSize - 1)
}

/** Nearest resize by torch's rule (not Pillow's, which takes pixel centres). */
export function resizeMaskNearest(mask: Mask, height: number, width: number): Mask {
  checkSize(height, width, 'resizeMaskNearest')
  const dense = toDense(mask)
  const columns = Int32Array.from({ length: width }, (_, x) => nearestIndex(x, mask.width, width))
  const out = new Uint8Array(height * width)
  for (let y = 0; y < height; y++) {
    const row = nearestIndex(y, mask.height, height) * mask.width
    for (let x = 0; x < width; x++) out[y * width + x] = dense[row + columns[x]!]!
  }
  return maskFromDense(out, height, width)
}
