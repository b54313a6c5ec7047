// Places on masks: the positive prompt derived from an object, where a mask is wrong, and the clicks a policy is compared with.
// Points are pixel indices [x, y] of the original image.
import type { RandomStream } from '../../core/index.ts'
import {
  type Click,
  type Deepest,
  deepestPixel,
  errorCentre,
  type Mask,
  maskArea,
  maskBox,
  maskFromDense,
  squaredDistances,
  toDense,
} from '../../mask/index.ts'
import type { PointMode } from './answer-config.ts'
import type { Box, Point } from './frame.ts'

export interface PositivePrompt {
  /** Both ends inside; null for an empty mask. */
  box: Box | null
  /** At most two. */
  points: Point[]
}

/** Both ends inside; null for an empty mask. */
export function boxOfMask(mask: Mask): Box | null {
  const [x, y, w, h] = maskBox(mask)
  return maskArea(mask) === 0 ? null : [x, y, x + w - 1, y + h - 1]
}

/** The box of a mask and up to two points well inside it. */
export function derivePrompt(mask: Mask): PositivePrompt & { d2: number[] } {
  if (maskArea(mask) === 0) return { box: null, points: [], d2: [] }
  const { width, height } = mask
  const dense = toDense(mask)
  const first = deepestPixel(dense, width, height)!
  const second = deepestPixel(withoutDisc(dense, width, first), width, height)
  const found = second ? [first, second] : [first]
  return { box: boxOfMask(mask), points: found.map((f) => f.point), d2: found.map((f) => f.d2) }
}

function withoutDisc(dense: Uint8Array, width: number, { point: [px, py], d2 }: Deepest): Uint8Array {
  const out = dense.slice()
  const reach = Math.floor(Math.sqrt(d2))
  for (let y = Math.max(0, py - reach); y <= py + reach && y * width < out.length; y++) {
    const half = Math.floor(Math.sqrt(d2 - (y - py) ** 2)) // exact: the squares are integers
    out.fill(0, y * width + Math.max(0, px - half), y * width + Math.min(width, px + half + 1))
  }
  return out
}

/** The pixels to paint where the border of a mask is drawn: edge pixels, thickened on large images. */
export function contour(mask: Mask): Mask {
  const { width, height } = mask
  const dense = toDense(mask)
  const thick = Math.floor(Math.max(width, height) / 420)
  const out = new Uint8Array(width * height)
  const at = (x: number, y: number) => x >= 0 && y >= 0 && x < width && y < height && dense[y * width + x] === 1
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const inner = at(x - 1, y) && at(x + 1, y) && at(x, y - 1) && at(x, y + 1)
      if (at(x, y) && !inner) paintSquare(out, width, height, [x, y], thick)
    }
  return maskFromDense(out, height, width)
}

function paintSquare(out: Uint8Array, width: number, height: number, [x, y]: Point, t: number): void {
  for (let v = Math.max(0, y - t); v <= Math.min(height - 1, y + t); v++)
    out.fill(1, v * width + Math.max(0, x - t), v * width + Math.min(width - 1, x + t) + 1)
}

/** SAM2's own correction; only in second-look may it be a positive click. */
export function oracleClick(target: Mask, current: Mask, mode: PointMode): Click | null {
  return errorCentre(target, current, mode === 'second-look' ? 'both' : 'negative')
}

/** Distances of the baselines are those of an image of 840 pixels. */
const scaleOf = (mask: Mask) => Math.max(mask.width, mask.height) / 840

/** The box of an object, grown by what negative points may be away from it, inside the image. */
function grownBox(target: Mask): Box {
  const margin = 50 * scaleOf(target)
  const [x, y, w, h] = maskBox(target)
  const [left, top] = [x, y].map((at) => Math.max(0, Math.ceil(at - margin))) as [number, number]
  const right = Math.min(target.width - 1, Math.floor(x + w - 1 + margin))
  return [left, top, right, Math.min(target.height - 1, Math.floor(y + h - 1 + margin))]
}

/** Pixels outside the object and inside its grown box, row by row. */
function candidates(target: Mask): number[] {
  const [left, top, right, bottom] = grownBox(target)
  const dense = toDense(target)
  const out: number[] = []
  for (let v = top; v <= bottom; v++)
    for (let at = v * target.width + left; at <= v * target.width + right; at++) if (!dense[at]) out.push(at)
  return out
}

/** Negative points anywhere around the object: one uniform number each. */
export function randomNegatives(target: Mask, count: number, random: Pick<RandomStream, 'uniform'>): Point[] {
  if (count === 0 || maskArea(target) === 0) return []
  const rest = candidates(target)
  const out: Point[] = []
  while (out.length < count && rest.length > 0) {
    const [at] = rest.splice(Math.floor(random.uniform() * rest.length), 1)
    out.push([at! % target.width, Math.floor(at! / target.width)])
  }
  return out
}

/** Negative points close around the object, nearest first, apart from each other. */
export function heuristicNegatives(target: Mask, count: number): Point[] {
  if (count === 0 || maskArea(target) === 0) return []
  const s = scaleOf(target)
  const [left, top, right, bottom] = grownBox(target)
  const [width, height] = [right - left + 1, bottom - top + 1]
  const dense = toDense(target)
  const outside = new Uint8Array(width * height)
  for (let y = 0, from = top * target.width + left; y < height; y++, from += target.width)
    for (let x = 0; x < width; x++) outside[y * width + x] = 1 - dense[from + x]!
  const d2 = squaredDistances(outside, width, height, false)
  const taken: Point[] = []
  while (taken.length < count) {
    let best = -1
    for (let i = 0; i < d2.length; i++) {
      if (d2[i]! <= 5 * s * (5 * s) || d2[i]! >= (d2[best] ?? 50 * s * (50 * s))) continue
      const [x, y] = [left + (i % width), top + Math.floor(i / width)]
      if (taken.every(([u, v]) => (x - u) * (x - u) + (y - v) * (y - v) >= 20 * s * (20 * s))) best = i
    }
    if (best < 0) break
    taken.push([left + (best % width), top + Math.floor(best / width)])
  }
  return taken
}

export interface KeepRecord {
  iou0: number
  /** Areas in pixels: where the first mask is wrong, and the object. */
  error: number
  target: number
}

export interface Kept {
  /** Indices, in order. */
  kept: number[]
  /** Left out: the positive prompt hits something else; nothing to correct. */
  hard: number
  easy: number
  /** Of the easy ones, kept so that abstaining is learned. */
  easyKept: number
}

/** Which records are worth training on. Records without a target pass. */
export function keepRecords(records: readonly KeepRecord[], tau: number, keepEasy: number): Kept {
  const out: Kept = { kept: [], hard: 0, easy: 0, easyKept: 0 }
  let seen = 0
  records.forEach(({ iou0, error, target }, i) => {
    if (target > 0 && iou0 < 0.05) {
      out.hard++
      return
    }
    if (target > 0 && (iou0 > 0.97 || error < tau * target)) {
      const keeps = Math.floor((seen + 1) * keepEasy + 1e-9) > Math.floor(seen * keepEasy + 1e-9)
      seen++
      out.easy++
      if (!keeps) return
      out.easyKept++
    }
    out.kept.push(i)
  })
  return out
}
