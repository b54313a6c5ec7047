// Pastes cut-out objects onto a picture: scaled, mirrored, turned. Own arithmetic, so that a seed gives the same pixels everywhere.
import { type RgbaImage, type RgbImage, resize } from '../../image/index.ts'

/** What is painted on: pixels, and the number of the topmost object of each (0: background). */
export interface Canvas {
  size: number
  rgb: Uint8Array
  owner: Uint8Array
}

interface Look {
  /** Longer side in pixels. */
  side: number
  /** Radians. */
  angle: number
  mirrored: boolean
}

/** An object ready to be pasted: a square with premultiplied alpha from 0 to 255. */
export interface Patch {
  side: number
  rgba: Float32Array
}

/** Colour times alpha, and alpha alone. */
function planesOf({ width, height, data }: RgbaImage): RgbImage[] {
  const colour = new Uint8Array(width * height * 3)
  const alpha = new Uint8Array(width * height * 3)
  for (let from = 0, to = 0; to < colour.length; from += 4, to += 3) {
    const a = data[from + 3]!
    if (a === 0) continue
    for (let c = 0; c < 3; c++) {
      colour[to + c] = Math.round((data[from + c]! * a) / 255)
      alpha[to + c] = a
    }
  }
  return [colour, alpha].map((plane) => ({ width, height, data: plane }))
}

export function makePatch(image: RgbaImage, { side: longer, angle, mirrored }: Look): Patch {
  const scale = longer / Math.max(image.width, image.height)
  const width = Math.max(1, Math.round(image.width * scale))
  const height = Math.max(1, Math.round(image.height * scale))
  const [colour, alpha] = planesOf(image).map((plane) => resize(plane, width, height, 'bilinear').data) as [
    Uint8Array,
    Uint8Array,
  ]
  const side = Math.ceil(Math.hypot(width, height))
  const rgba = new Float32Array(side * side * 4)
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)]
  for (let row = 0, at = 0; row < side; row++)
    for (let column = 0; column < side; column++, at += 4) {
      const dx = column + 0.5 - side / 2
      const dy = row + 0.5 - side / 2
      const u = (cos * dx + sin * dy) * (mirrored ? -1 : 1) + width / 2 - 0.5
      const v = cos * dy - sin * dx + height / 2 - 0.5
      for (let corner = 0; corner < 4; corner++) {
        const x = Math.floor(u) + (corner & 1)
        const y = Math.floor(v) + (corner >> 1)
        if (x < 0 || y < 0 || x >= width || y >= height) continue // transparent outside
        const from = (y * width + x) * 3
        if (alpha[from] === 0) continue
        const weight = (1 - Math.abs(u - x)) * (1 - Math.abs(v - y))
        rgba[at]! += weight * colour[from]!
        rgba[at + 1]! += weight * colour[from + 1]!
        rgba[at + 2]! += weight * colour[from + 2]!
        rgba[at + 3]! += weight * alpha[from]!
      }
    }
  return { side, rgba }
}

/** Paints a patch as object `number` (from 1) with its centre at (x, y); returns how many pixels it covers. */
export function paste({ size, rgb, owner }: Canvas, patch: Patch, number: number, x: number, y: number): number {
  const [left, top] = [Math.round(x - patch.side / 2), Math.round(y - patch.side / 2)]
  let covered = 0
  const [first, last] = [Math.max(0, -left), Math.min(patch.side, size - left)] // columns of the patch that are on the canvas
  for (let y = Math.max(0, -top); y < Math.min(patch.side, size - top); y++)
    for (let x = first; x < last; x++) {
      const from = (y * patch.side + x) * 4
      const alpha = patch.rgba[from + 3]! / 255
      if (alpha === 0) continue
      const at = (top + y) * size + left + x
      for (let c = 0; c < 3; c++)
        rgb[at * 3 + c] = Math.min(255, Math.round(patch.rgba[from + c]! + rgb[at * 3 + c]! * (1 - alpha)))
      if (alpha < 0.5) continue
      owner[at] = number
      covered++
    }
  return covered
}
