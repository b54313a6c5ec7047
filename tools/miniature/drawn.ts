// Composed pictures of drawn objects (`emoji:`) as training data of the stages. An object is described by what its pixels and its mask
// show: main colour, size, place.
import { type RandomStream, stream, streamId } from '../../src/core/index.ts'
import { openEmoji } from '../../src/data/index.ts'
import { maskArea, maskFromDense } from '../../src/mask/index.ts'
import { prepareImage, type Sa2VAConfig } from '../../src/models/index.ts'
import {
  backgroundPhotos,
  type Description,
  looksOf,
  mainColours,
  openComposer,
  positions,
  type Scene,
  sayLooks,
  sizes,
} from '../../src/scenes/index.ts'
import { maxObjects } from './segmenter.ts'
import { batches, type Kinds, type Pool, type Row } from './world.ts'

type Drawing = Pick<Scene, 'image' | 'owner'>

export async function drawings(count: number, seed: number, size: number): Promise<Drawing[]> {
  const composer = openComposer(await openEmoji(), backgroundPhotos(), seed, size)
  const all: Drawing[] = []
  for (let i = 0; i < count; i++) all.push(await composer.compose(i))
  return all
}

const drawnKinds: Kinds = { colour: mainColours, size: sizes }

/** The pictures, each mirrored and in other light at random; another seed gives other ones. */
export function drawnPool(pictures: readonly Drawing[], cfg: Sa2VAConfig, seed: number): Pool {
  const prepare = (index: number) => {
    const scene = varied(pictures[index]!, stream(streamId.scenes, seed, 'drawn', index))
    return { scene, input: prepareImage(scene.image, cfg), rows: rowsOf(scene) }
  }
  return {
    kinds: drawnKinds,
    seen: { ...drawnKinds, position: positions },
    batch: batches([seed, pictures.length], prepare, ({ rows }, image, random) =>
      rows.map((row) => ({ ...row, image, description: describe(row, rows, random) })),
    ),
    word: sayLooks,
    caption: ({ object }, random) => someOf(object, random),
  }
}

/** How often a caption names what: people say little about an object, and rarely where it is. */
const named = { colour: 0.6, size: 0.3, position: 0.15 }

/** At least one of the attributes. */
function someOf(object: Row['object'], random: RandomStream): Description {
  const kinds = (Object.keys(named) as (keyof typeof named)[]).filter((kind) => random.uniform() < named[kind])
  return kinds.length > 0 ? Object.fromEntries(kinds.map((kind) => [kind, object[kind]])) : someOf(object, random)
}

const minPixels = 60

function rowsOf({ image, owner }: Drawing): Row[] {
  return Array.from({ length: maxObjects }, (_, index) => {
    const inside = owner.map((number) => (number === index + 1 ? 1 : 0))
    return { index, mask: maskFromDense(inside, image.height, image.width) }
  })
    .filter(({ mask }) => maskArea(mask) >= minPixels)
    .map((row) => ({ ...row, image: 0, object: looksOf(image, row.mask), description: {} }))
}

/** A random part of what is true of an object and of no other one of the picture; everything if nothing singles it out. */
function describe({ object, index }: Row, rows: readonly Row[], random: RandomStream): Description {
  const { colour, size, position } = object
  const parts: Description[] = [{ colour }, { position }, { colour, size }, { colour, position }, { size, position }]
  const alone = parts.filter((part) => {
    const names = Object.keys(part) as (keyof typeof object)[]
    return !rows.some((r) => r.index !== index && names.every((name) => r.object[name] === object[name]))
  })
  return alone.length > 0 ? random.pick(alone) : { colour, size, position }
}

/** Mirrored, with other brightness, saturation and tint, and noise: drawings are brighter and cleaner than photographs. */
function varied({ image, owner }: Drawing, random: RandomStream): Drawing {
  const between = (low: number, high: number) => low + (high - low) * random.uniform()
  const [way, side] = [random.below(4), image.width]
  const [gain, saturation, noise] = [between(0.5, 1.15), between(0.25, 1.15), between(0, 14)]
  const tint = [0, 1, 2].map(() => gain * between(0.85, 1.15))
  const mirrored = Int32Array.from(owner, (_, at) => {
    const [x, y] = [at % side, Math.floor(at / side)]
    return (way & 2 ? side - 1 - y : y) * side + (way & 1 ? side - 1 - x : x)
  })
  const data = new Uint8Array(image.data.length)
  mirrored.forEach((from, at) => {
    const pixel = image.data.subarray(3 * from, 3 * from + 3)
    const grey = 0.3 * pixel[0]! + 0.59 * pixel[1]! + 0.11 * pixel[2]!
    pixel.forEach((value, c) => {
      const level = (grey + saturation * (value - grey)) * tint[c]! + noise * (2 * random.uniform() - 1)
      data[3 * at + c] = Math.max(0, Math.min(255, Math.round(level)))
    })
  })
  return { image: { ...image, data }, owner: owner.map((_, at) => owner[mirrored[at]!]!) }
}
