// Pastes a cut-out object onto a picture: turned, scaled, mirrored. Own arithmetic, so that a seed gives the same pixels everywhere.
import type { RgbaImage } from '../../image/index.ts'

/** What is painted on: pixels, and the number of the topmost object of each (0: background). */
export interface Canvas {
  size: number
  rgb: Uint8Array
  owner: Uint8Array
}

export interface Placement {
  /** Centre and longer side in pixels of the canvas. */
  x: number
  y: number
  side: number
  /** Radians. */
  angle: number
  mirrored: boolean
}

/** The part of an object that is not transparent. */
function trim({ width, height, data }: RgbaImage): RgbaImage {
  let [left, top, right, bottom] = [width, height, -1, -1]
  for (let i = 0; i < width * height; i++) {
    if (data[i * 4 + 3]! < 128) continue
    const x = i % width
    const y = Math.floor(i / width)
    left = Math.min(left, x)
    right = Math.max(right, x)
    top = Math.min(top, y)
    bottom = Math.max(bottom, y)
  }
  if (right < 0) return { width: 0, height: 0, data: new Uint8Array(0) }
  const [w, h] = [right - left + 1, bottom - top + 1]
  const out = new Uint8Array(w * h * 4)
  for (let y = 0; y < h; y++) {
    const from = ((top + y) * width + left) * 4
    out.set(data.subarray(from, from + w * 4), y * w * 4)
  }
  return { width: w, height: h, data: out }
}

/** A trimmed object with premultiplied alpha, smaller by a whole factor. */
interface Level {
  width: number
  height: number
  data: Float32Array
}

/** An object that can be pasted at any size. */
export interface PasteObject {
  width: number
  height: number
  /** Averages over `factor` x `factor` blocks: bilinear samples of them do not alias. */
  level(factor: number): Level
}

export function toPasteObject(image: RgbaImage): PasteObject {
  const object = trim(image)
  const levels = new Map<number, Level>()
  const level = (factor: number) => {
    const reduced = levels.get(factor) ?? reduce(object, factor)
    levels.set(factor, reduced)
    return reduced
  }
  return { width: object.width, height: object.height, level }
}

function reduce({ width, height, data }: RgbaImage, factor: number): Level {
  const w = Math.ceil(width / factor)
  const h = Math.ceil(height / factor)
  const out = new Float32Array(w * h * 4)
  const share = 1 / (255 * factor * factor)
  for (let y = 0, from = 0; y < height; y++) {
    const row = Math.floor(y / factor) * w
    for (let x = 0; x < width; x++, from += 4) {
      const alpha = data[from + 3]! * share
      if (alpha === 0) continue
      const to = (row + Math.floor(x / factor)) * 4
      out[to]! += data[from]! * alpha
      out[to + 1]! += data[from + 1]! * alpha
      out[to + 2]! += data[from + 2]! * alpha
      out[to + 3]! += alpha
    }
  }
  return { width: w, height: h, data: out }
}

/** Paints object `number` (from 1) over the canvas; returns how many pixels it covers. */
export function paste(canvas: Canvas, object: PasteObject, number: number, placement: Placement): number {
  const { size, rgb, owner } = canvas
  const { x: cx, y: cy, side, angle, mirrored } = placement
  const scale = side / Math.max(object.width, object.height)
  const factor = Math.max(1, Math.floor(1 / scale))
  const level = object.level(factor)
  const cos = Math.cos(angle) / (scale * factor)
  const sin = Math.sin(angle) / (scale * factor)
  const reach = (Math.hypot(object.width, object.height) * scale) / 2 + 1
  const last = (centre: number) => Math.min(size - 1, Math.floor(centre + reach))
  const sample = new Float32Array(4)
  let covered = 0
  for (let y = Math.max(0, Math.floor(cy - reach)); y <= last(cy); y++) {
    for (let x = Math.max(0, Math.floor(cx - reach)); x <= last(cx); x++) {
      const u = cos * (x + 0.5 - cx) + sin * (y + 0.5 - cy)
      const v = cos * (y + 0.5 - cy) - sin * (x + 0.5 - cx)
      if (!sampleAt(level, (mirrored ? -u : u) + object.width / factor / 2, v + object.height / factor / 2, sample))
        continue
      const at = y * size + x
      blend(rgb, at * 3, sample)
      if (sample[3]! < 0.5) continue
      owner[at] = number
      covered++
    }
  }
  return covered
}

function blend(rgb: Uint8Array, at: number, sample: Float32Array): void {
  const through = 1 - sample[3]!
  for (let c = 0; c < 3; c++) rgb[at + c] = Math.min(255, Math.round(sample[c]! + rgb[at + c]! * through))
}

/** Bilinear, transparent outside; false if nothing of the object is there. */
function sampleAt({ width, height, data }: Level, u: number, v: number, out: Float32Array): boolean {
  const x = Math.floor(u - 0.5)
  const y = Math.floor(v - 0.5)
  if (x < -1 || y < -1 || x >= width || y >= height) return false
  const fx = u - 0.5 - x
  const fy = v - 0.5 - y
  const left = x >= 0 ? 1 - fx : 0
  const right = x + 1 < width ? fx : 0
  const upper = y >= 0 ? 1 - fy : 0
  const lower = y + 1 < height ? fy : 0
  const at = (y * width + x) * 4 // reads outside have weight 0
  const below = at + width * 4
  for (let c = 3; c >= 0; c--) {
    let sum = 0
    if (upper > 0) sum += upper * ((left && left * data[at + c]!) + (right && right * data[at + 4 + c]!))
    if (lower > 0) sum += lower * ((left && left * data[below + c]!) + (right && right * data[below + 4 + c]!))
    if (c === 3 && sum === 0) return false
    out[c] = sum
  }
  return true
}
