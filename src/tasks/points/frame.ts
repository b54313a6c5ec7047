// The frames a point passes through: what the model wrote, its own image (w x h), the original image (W0 x H0). All float64, evaluated
// from left to right as written, so that a place on an edge falls to the same side everywhere.
import type { CoordinateKind } from './answer-config.ts'

export type Point = readonly [number, number]
/** [x1, y1, x2, y2] */
export type Box = readonly [number, number, number, number]

export interface FrameSize {
  width: number
  height: number
}

/** A written coordinate along a side of the model's image; minus zero becomes zero. */
function along(value: number, side: number, coords: CoordinateKind): number {
  if (coords === 'thousand') return (value * side) / 1000 + 0
  return (coords === 'unit' ? value * side : value) + 0
}

/** What the model wrote -> its image. */
export function toModelFrame([x, y]: Point, coords: CoordinateKind, { width, height }: FrameSize): Point {
  return [along(x, width, coords), along(y, height, coords)]
}

export function isInside([x, y]: Point, { width, height }: FrameSize): boolean {
  return x >= 0 && x < width && y >= 0 && y < height
}

/** A place in one frame -> the same place in another: the model's image to the original, or to the input of SAM2. */
export function rescale([x, y]: Point, from: FrameSize, to: FrameSize): Point {
  return [(x * to.width) / from.width, (y * to.height) / from.height]
}

/** The pixel of the original that a place of the model's image falls on. */
export function pixelAt(point: Point, model: FrameSize, original: FrameSize): Point {
  const [x, y] = rescale(point, model, original)
  return [Math.min(original.width - 1, Math.floor(x)), Math.min(original.height - 1, Math.floor(y))]
}

/** Pixel index of the original -> the numbers a prompt prints: the place of the pixel's centre. */
export function printedPoint([x, y]: Point, coords: CoordinateKind, model: FrameSize, original: FrameSize): Point {
  const printed = (index: number, from: number, to: number): number => {
    if (coords === 'pixel') return Math.min(to - 1, Math.floor(((index + 0.5) * to) / from))
    const thousandths = Math.floor(((index + 0.5) * 1000) / from)
    return coords === 'thousand' ? Math.min(999, thousandths) : thousandths / 1000
  }
  return [printed(x, original.width, model.width), printed(y, original.height, model.height)]
}
