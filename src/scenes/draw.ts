// Pixels of a scene: no blending at edges, so a pixel belongs to exactly one object or to the background.
import type { RandomStream } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import type { Colour, SceneObject, Shape, Texture } from './world.ts'

type Rgb = readonly [number, number, number]

export const rgbOf: Readonly<Record<Colour, Rgb>> = {
  red: [208, 36, 40],
  green: [36, 148, 62],
  blue: [40, 82, 212],
  yellow: [238, 208, 32],
  purple: [138, 44, 168],
  orange: [242, 130, 22],
}

/** Whether a point, in radii from the centre, is inside. Every shape fits into radius 1. */
const insideOf: Readonly<Record<Shape, (u: number, v: number) => boolean>> = {
  circle: (u, v) => u * u + v * v <= 0.81,
  square: (u, v) => Math.max(Math.abs(u), Math.abs(v)) <= 0.7,
  // Corners on the unit circle, one up: below the two upper edges and above the lower one.
  triangle: (u, v) => v <= 0.5 && v >= -1 + Math.sqrt(3) * Math.abs(u),
  cross: (u, v) => Math.max(Math.abs(u), Math.abs(v)) <= 0.93 && Math.min(Math.abs(u), Math.abs(v)) <= 0.32,
  star: insideStar,
}

const starInner = 0.5

/** Five points, one up; inner corners at `starInner`. Folded into one tenth of the turn, the edge is one straight line. */
function insideStar(u: number, v: number): boolean {
  const square = u * u + v * v
  if (square < 0.19 || square > 1.001) return square < 1 // nearer than every edge, or outside the circle around the points
  const tenth = Math.PI / 5
  const angle = Math.abs(((((Math.atan2(u, -v) + tenth) % (2 * tenth)) + 2 * tenth) % (2 * tenth)) - tenth)
  const distance = Math.hypot(u, v)
  const [x, y] = [distance * Math.cos(angle), distance * Math.sin(angle)]
  // Edge from the tip (1, 0) to the inner corner.
  const [ex, ey] = [starInner * Math.cos(tenth) - 1, starInner * Math.sin(tenth)]
  return ex * y - ey * (x - 1) >= 0
}

/** A scene on a square image, and the owner of each pixel (0 background, k + 1 object k). Pixels are painted when they are first read. */
export function draw(objects: readonly SceneObject[], size: number, random: RandomStream) {
  const owner = ownerMap(objects, size)
  let data: Uint8Array | undefined
  const image: RgbImage = {
    ...{ width: size, height: size },
    get data() {
      data ??= paintPixels(objects, owner, size, random)
      return data
    },
  }
  return { image, owner }
}

function paintPixels(objects: readonly SceneObject[], owner: Uint8Array, size: number, random: RandomStream) {
  const paints = [makeBackground(random), ...objects.map((object) => makePaint(object, random))] // by owner
  const grain = 2 + random.below(3) // largest deviation of a pixel, in levels
  // A separate counter range: the grain does not depend on how many numbers were drawn before.
  const grainFrom = 1 << 20
  const data = new Uint8Array(size * size * 3)
  for (let at = 0; at < owner.length; at++) {
    const x = ((at % size) + 0.5) / size
    const y = (Math.floor(at / size) + 0.5) / size
    const paint = paints[owner[at]!]!
    const rgb = paint.isMarked?.(x, y) ? paint.mark : paint.base
    const slope = paint.slopeX * (x - 0.5) + paint.slopeY * (y - 0.5)
    const shift = slope + (random.wordAt(grainFrom + at) % (2 * grain + 1)) - grain
    for (let c = 0; c < 3; c++) data[at * 3 + c] = Math.max(0, Math.min(255, Math.round(rgb[c]! + shift)))
  }
  return data
}

/** Whether the point is inside the object. */
export function covers(object: SceneObject, x: number, y: number): boolean {
  return insideOf[object.shape]((x - object.x) / object.radius, (y - object.y) / object.radius)
}

/** Later objects lie over earlier ones. */
function ownerMap(objects: readonly SceneObject[], size: number): Uint8Array {
  const owner = new Uint8Array(size * size)
  objects.forEach((object, k) => {
    const from = (centre: number) => Math.max(0, Math.floor((centre - object.radius) * size))
    const to = (centre: number) => Math.min(size - 1, Math.ceil((centre + object.radius) * size))
    const inside = insideOf[object.shape]
    for (let y = from(object.y); y <= to(object.y); y++) {
      const v = ((y + 0.5) / size - object.y) / object.radius
      for (let x = from(object.x); x <= to(object.x); x++) {
        if (inside(((x + 0.5) / size - object.x) / object.radius, v)) owner[y * size + x] = k + 1
      }
    }
  })
  return owner
}

/** Stripes are dark, dots are light; both about a fifteenth of the image apart, so that a small object shows several. */
const period = 0.068

const marked: Readonly<Record<Texture, ((dx: number, dy: number) => boolean) | null>> = {
  plain: null,
  striped: (_, dy) => fraction(dy / period) < 0.5,
  dotted: (dx, dy) => Math.hypot(fraction(dx / period) - 0.5, fraction(dy / period) - 0.5) < 0.32,
}

function fraction(value: number): number {
  return value - Math.floor(value)
}

interface Paint {
  base: readonly number[]
  mark: readonly number[]
  isMarked: ((x: number, y: number) => boolean) | null
  /** Levels added to every channel, per side of the image. */
  slopeX: number
  slopeY: number
}

function makePaint(object: SceneObject, random: RandomStream): Paint {
  const base = rgbOf[object.colour].map((level) => level + 24 * (random.uniform() - 0.5))
  const mark = object.texture === 'dotted' ? base.map((l) => l + 0.75 * (255 - l)) : base.map((l) => 0.4 * l)
  const [shiftX, shiftY] = [random.uniform() * period, random.uniform() * period]
  const pattern = marked[object.texture]
  const isMarked = pattern && ((x: number, y: number) => pattern(x - object.x + shiftX, y - object.y + shiftY))
  return { base, mark, isMarked, slopeX: 0, slopeY: 0 }
}

/** A grey with a slight tint and a slight slope. */
function makeBackground(random: RandomStream): Paint {
  const grey = 165 + 60 * random.uniform()
  const base = [0, 1, 2].map(() => grey + 14 * (random.uniform() - 0.5))
  const slopeX = 16 * (random.uniform() - 0.5)
  const slopeY = 16 * (random.uniform() - 0.5)
  return { base, mark: base, isMarked: null, slopeX, slopeY }
}
