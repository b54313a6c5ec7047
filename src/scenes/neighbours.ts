// Generated scenes with confusable neighbours: an object and others that touch it. One click makes a segmenter take the whole cluster;
// a negative click on another part excludes that part. A pure function of (seed, index). Lengths are pixels of the square image.
import { type RandomStream, shuffled, stream, streamId } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import { type Mask, maskFromDense } from '../mask/index.ts'
import { rgbOf } from './draw.ts'
import { type Colour, colours } from './world.ts'

type Point = readonly [number, number]

export const sceneSide = 112

const forms = ['circle', 'square', 'diamond'] as const
type Form = (typeof forms)[number]

export interface ScenePart {
  colour: Colour
  form: Form
  centre: Point
  radius: number
}

export interface PointScene {
  id: string
  query: string
  /** The target, then what touches it; every part has a different colour. */
  parts: readonly ScenePart[]
  /** Row-major; 0 background, k + 1 part k. */
  owner: Uint8Array
  record: { id: string; image: RgbImage; query: string; mask: Mask }
}

/** Scene `index` of the endless set `seed`. */
export function makePointScene(seed: number, index: number): PointScene {
  const random = stream(streamId.scenes, seed, 'points', index)
  const parts = layOut(random)
  const target = parts[0]!
  const owner = ownerMap(parts)
  const id = `points-${seed}-${index}`
  const query = `the ${target.colour} ${target.form}`
  const mask = maskFromDense(
    owner.map((k) => (k === 1 ? 1 : 0)),
    sceneSide,
    sceneSide,
  )
  const image = { width: sceneSide, height: sceneSide, data: paint(parts, owner, random) }
  const record = { id, image, query, mask }
  return { id, query, parts, owner, record }
}

/** Share of scenes without neighbours. */
const aloneShare = 0.12

/** The target is in one of four places, its neighbour on one of its four sides. */
function layOut(random: RandomStream): ScenePart[] {
  const [first, second] = shuffled(colours, random)
  const place = () => random.pick([40, 72]) + random.below(5) - 2
  const target = {
    colour: first!,
    form: random.pick(forms),
    centre: [place(), place()] as const,
    radius: radius(random),
  }
  return random.uniform() < aloneShare ? [target] : [target, touching(target, second!, random)]
}

const radius = (random: RandomStream) => 12 + random.below(5)

function touching({ centre: [x, y], radius: own }: ScenePart, colour: Colour, random: RandomStream): ScenePart {
  const size = radius(random)
  const reach = Math.round(0.85 * (own + size))
  const [right, down] = random.pick([
    [1, 0],
    [-1, 0],
    [0, 1],
    [0, -1],
  ] as const)
  return { colour, form: random.pick(forms), centre: [x + reach * right, y + reach * down], radius: size }
}

const insideOf: Record<Form, (u: number, v: number) => boolean> = {
  circle: (u, v) => u * u + v * v <= 1,
  square: (u, v) => Math.max(Math.abs(u), Math.abs(v)) <= 0.85,
  diamond: (u, v) => Math.abs(u) + Math.abs(v) <= 1.15,
}

/** The target lies over its neighbours. */
function ownerMap(parts: readonly ScenePart[]): Uint8Array {
  const owner = new Uint8Array(sceneSide * sceneSide)
  for (let k = parts.length - 1; k >= 0; k--) {
    const { centre, radius, form } = parts[k]!
    for (let y = 0; y < sceneSide; y++)
      for (let x = 0; x < sceneSide; x++)
        if (insideOf[form]((x - centre[0]) / radius, (y - centre[1]) / radius)) owner[y * sceneSide + x] = k + 1
  }
  return owner
}

/** Tiles of 28 pixels in different greys: they show a model with relative positions where it is in the image. */
function floorAt(pixel: number): number[] {
  const tiles = sceneSide / 28
  const tile = Math.floor(Math.floor(pixel / sceneSide) / 28) * tiles + Math.floor((pixel % sceneSide) / 28)
  const grey = 185 + (50 * tile) / (tiles * tiles - 1)
  return [grey, grey, grey]
}

function paint(parts: readonly ScenePart[], owner: Uint8Array, random: RandomStream): Uint8Array {
  const noiseFrom = 1 << 20 // a separate counter range
  const data = new Uint8Array(3 * owner.length)
  owner.forEach((k, at) => {
    const shift = (random.wordAt(noiseFrom + at) % 13) - 6
    const paint = k === 0 ? floorAt(at) : rgbOf[parts[k - 1]!.colour]
    for (let c = 0; c < 3; c++) data[at * 3 + c] = Math.max(0, Math.min(255, Math.round(paint[c]! + shift)))
  })
  return data
}
