// Training data of the stages: every object of an image is one row with a description. B images, R rows.
import { type RandomStream, stream, streamId } from '../../src/core/index.ts'
import { regionGrid } from '../../src/image/index.ts'
import { type Mask, maskFromDense } from '../../src/mask/index.ts'
import { type ImageInput, prepareImage, type Sa2VAConfig } from '../../src/models/index.ts'
import {
  colours,
  type Description,
  describe,
  hasPosition,
  makeScene,
  type Place,
  positions,
  relations,
  type Scene,
  shapes,
  sizes,
  textures,
  word,
} from '../../src/scenes/index.ts'
import { type Tensor, tensor } from '../../src/tensor/index.ts'
import { on } from './stage.ts'

/** Attributes of one value each, in the order of their codes. */
export type Kinds = { readonly [K in keyof Description]?: readonly string[] }
const sceneKinds: Kinds = { colour: colours, shape: shapes, size: sizes, texture: textures }
export const kindNames = (kinds: Kinds) => Object.keys(kinds) as (keyof Omit<Description, 'relation'>)[]

export interface Row {
  /** Number of the image in the batch. */
  image: number
  /** Number of the object in the image. */
  index: number
  object: Omit<Description, 'relation'> & Place
  mask: Mask
  /** Fits only this object. */
  description: Description
}

export interface Batch {
  scenes: readonly Pick<Scene, 'image' | 'owner'>[]
  inputs: readonly ImageInput[]
  rows: readonly Row[]
  random: RandomStream
}

/** Where the stages take their images and words from. */
export interface Pool {
  /** Attributes with vectors for the segmenter. */
  readonly kinds: Kinds
  /** Attributes that InternViT's features must show. */
  readonly seen: Kinds
  batch(step: number, size: number): Batch
  word(description: Description, random: RandomStream): string
  /** What a caption names. */
  caption(row: Row, random: RandomStream, stage: Terseness): Description
}

export interface Terseness {
  /** Share of captions that name one or two attributes and often fit several objects. */
  terse?: number
  /** Whether these may name the colour, which separates most objects. */
  terseColour?: boolean
}

type Picture = Batch['scenes'][number]

/** Batches of `count` images, each prepared once and repeated. */
export function batches<P extends { scene: Picture; input: ImageInput }>(
  [seed, count]: readonly [number, number],
  prepare: (index: number) => P,
  rowsOf: (prepared: P, image: number, random: RandomStream) => Row[],
): Pool['batch'] {
  const known = new Map<number, P>()
  const at = (index: number) => {
    const prepared = known.get(index) ?? prepare(index)
    known.set(index, prepared)
    return prepared
  }
  return (step, size) => {
    const random = stream(streamId.scenes, seed, 'rows', step)
    const prepared = Array.from({ length: size }, (_, b) => at((step * size + b) % count))
    const rows = prepared.flatMap((p, image) => rowsOf(p, image, random))
    return { scenes: prepared.map((p) => p.scene), inputs: prepared.map((p) => p.input), rows, random }
  }
}

/** `count` scenes of a seed. */
export function scenePool(cfg: Sa2VAConfig, seed: number, count: number): Pool {
  const prepare = (index: number) => {
    const scene = makeScene(seed, index)
    return { scene, input: prepareImage(scene.image, cfg) }
  }
  return {
    kinds: sceneKinds,
    seen: sceneKinds,
    batch: batches([seed, count], prepare, ({ scene }, image, random) => rowsOf(scene, image, random)),
    word,
    caption: (row, random, { terse = 0, terseColour = true }) => {
      if (random.uniform() >= terse) return demandFor(row, random)
      const { colour, shape, size, texture } = row.object
      const few = [{ shape }, { size, shape }, { size, shape }, { texture, shape }]
      return random.pick(terseColour ? [...few, { colour, shape }] : few)
    },
  }
}

function rowsOf(scene: Scene, image: number, random: RandomStream): Row[] {
  const { width, height } = scene.image
  return scene.objects.flatMap((object, index) => {
    const description = describe(scene.objects, index, random)
    if (!description) return []
    const dense = scene.owner.map((owner) => (owner === index + 1 ? 1 : 0))
    return [{ image, index, object, mask: maskFromDense(dense, height, width), description }]
  })
}

/** The description with more attributes of the object, each with the given probability. */
export function enriched({ description, object }: Row, chance: number, random: RandomStream): Description {
  const out = { ...description }
  for (const kind of kindNames(sceneKinds)) if (random.uniform() < chance) Object.assign(out, { [kind]: object[kind] })
  const places = placesOf(object)
  if (!out.position && !out.relation && places.length > 0 && random.uniform() < chance)
    out.position = random.pick(places)
  return out
}

/** The row's description, plain or enriched with equal probability. */
export function demandFor(row: Row, random: RandomStream): Description {
  return random.uniform() < 0.5 ? row.description : enriched(row, 0.5, random)
}

/** In every bag: marks a token as a request to the decoder. */
const always = 'demand'

function wordsOf(kinds: Kinds): string[] {
  const own = kindNames(kinds).flatMap((kind) => kinds[kind]!.map((value) => `${kind} ${value}`))
  const places = positions.map((p) => `position ${p}`)
  return [...own, ...places, ...relations.map((r) => `relation ${r}`), ...own.map((w) => `of ${w}`), always]
}

/** Size of the vocabulary of `bagsOf`. */
export const bagSize = (kinds: Kinds) => wordsOf(kinds).length

/** Descriptions as bags of their attributes: 0/1 [R, bagSize]. */
export function bagsOf(descriptions: readonly Description[], kinds: Kinds): Tensor {
  const lists = descriptions.map(({ position, relation, ...own }) => [
    ...valueWords(own, kinds),
    ...(position ? [`position ${position}`] : []),
    ...(relation ? [`relation ${relation.kind}`, ...valueWords(relation.of, kinds).map((w) => `of ${w}`)] : []),
  ])
  return bags(lists, wordsOf(kinds))
}

/** All attributes and positions of each object: [R, bagSize]. */
export function fullBags(rows: readonly Row[], kinds: Kinds): Tensor {
  const placesOfRow = (row: Row) => placesOf(row.object).map((p) => `position ${p}`)
  const lists = rows.map((row) => [...valueWords(row.object, kinds), ...placesOfRow(row)])
  return bags(lists, wordsOf(kinds))
}

/** The position of an object, or all that hold. */
function placesOf(object: Row['object']) {
  return object.position ? [object.position] : positions.filter((p) => hasPosition(object, p))
}

function valueWords(of: Description, kinds: Kinds): string[] {
  return kindNames(kinds).flatMap((kind) => (of[kind] ? [`${kind} ${of[kind]}`] : []))
}

function bags(lists: readonly (readonly string[])[], words: readonly string[]): Tensor {
  const at = new Map(words.map((w, i) => [w, i]))
  const data = new Float32Array(lists.length * words.length)
  lists.forEach((list, r) => {
    for (const w of [always, ...list]) data[r * words.length + at.get(w)!] = 1
  })
  return tensor(data, [lists.length, words.length], on)
}

/** An orthonormal code for each value of each kind, in the order of the bags: rows of a Hadamard matrix, [values, width]. */
export function attributeCodes(width: number, kinds: Kinds): Tensor {
  const count = Object.values(kinds).flat().length
  const data = new Float32Array(count * width)
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < width; j++) data[i * width + j] = (isOdd((i + 1) & j) ? -1 : 1) / Math.sqrt(width)
  }
  return tensor(data, [count, width], on)
}

/** Averages over the cells of each place on a grid: [places, grid * grid]. */
export function placeCells(grid: number): Tensor {
  const inside = positions.map((place) =>
    Array.from({ length: grid * grid }, (_, i) => {
      const at = { x: ((i % grid) + 0.5) / grid, y: (Math.floor(i / grid) + 0.5) / grid }
      return hasPosition(at, place) ? 1 : 0
    }),
  )
  const shares = inside.map((row) => row.map((on) => on / row.reduce<number>((a, b) => a + b, 0)))
  return tensor(Float32Array.from(shares.flat()), [positions.length, grid * grid], on)
}

/** An odd number of ones in binary. */
function isOdd(bits: number): boolean {
  let odd = false
  for (let left = bits; left > 0; left >>= 1) if (left & 1) odd = !odd
  return odd
}

/** Averages over the cells of each row's object on a grid of each image: [R, B * grid * grid]. */
export function regionAverages(batch: Batch, grid: number): Tensor {
  const cells = grid * grid
  const width = batch.inputs.length * cells
  const data = new Float32Array(batch.rows.length * width)
  batch.rows.forEach(({ image, mask }, r) => {
    const region = regionGrid(mask, grid)
    region.cells.forEach((on, i) => {
      if (on) data[r * width + image * cells + i] = 1 / region.count
    })
  })
  return tensor(data, [batch.rows.length, width], on)
}

/** Pixels of all images in one tensor: those of InternViT (one tile each) or of SAM2. */
export function pixelsOf(batch: Batch, of: 'pixels' | 'samPixels'): Tensor {
  const one = batch.inputs[0]![of].length
  const data = new Float32Array(batch.inputs.length * one)
  batch.inputs.forEach((input, i) => {
    data.set(input[of], i * one)
  })
  const side = Math.sqrt(one / 3)
  return tensor(data, [batch.inputs.length, 3, side, side], on)
}
