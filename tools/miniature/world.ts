// Scenes as training data of the stages: every object of an image is one row with a description. B images, R rows.
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
  positions,
  relations,
  type Scene,
  type SceneObject,
  shapes,
  sizes,
  textures,
} from '../../src/scenes/index.ts'
import { type Tensor, tensor } from '../../src/tensor/index.ts'

export const kinds = { colour: colours, shape: shapes, size: sizes, texture: textures } as const
export const kindNames = ['colour', 'shape', 'size', 'texture'] as const

export interface Row {
  /** Number of the image in the batch. */
  image: number
  /** Number of the object in the image. */
  index: number
  object: SceneObject
  mask: Mask
  /** Fits only this object. */
  description: Description
}

export interface Batch {
  scenes: readonly Scene[]
  inputs: readonly ImageInput[]
  rows: readonly Row[]
  random: RandomStream
}

type Prepared = { scene: Scene; input: ImageInput }

/** `count` scenes of a seed, drawn once and repeated. */
export class ScenePool {
  readonly #prepared = new Map<number, Prepared>()
  readonly #seed: number
  readonly #count: number
  readonly #cfg: Sa2VAConfig

  constructor(cfg: Sa2VAConfig, seed: number, count: number) {
    this.#cfg = cfg
    this.#seed = seed
    this.#count = count
  }

  batch(step: number, size: number): Batch {
    const random = stream(streamId.scenes, this.#seed, 'rows', step)
    const prepared = Array.from({ length: size }, (_, b) => this.#at((step * size + b) % this.#count))
    const rows = prepared.flatMap(({ scene }, image) => rowsOf(scene, image, random))
    return { scenes: prepared.map((p) => p.scene), inputs: prepared.map((p) => p.input), rows, random }
  }

  #at(index: number): Prepared {
    const known = this.#prepared.get(index)
    if (known) return known
    const scene = makeScene(this.#seed, index)
    const prepared = { scene, input: prepareImage(scene.image, this.#cfg) }
    this.#prepared.set(index, prepared)
    return prepared
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
  for (const kind of kindNames) if (random.uniform() < chance) Object.assign(out, { [kind]: object[kind] })
  const places = positions.filter((p) => hasPosition(object, p))
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

const words = [
  ...kindNames.flatMap((kind) => kinds[kind].map((value) => `${kind} ${value}`)),
  ...positions.map((p) => `position ${p}`),
  ...relations.map((r) => `relation ${r}`),
  ...kindNames.flatMap((kind) => kinds[kind].map((value) => `of ${kind} ${value}`)),
  always,
]
const wordAt = new Map(words.map((w, i) => [w, i]))

/** Size of the vocabulary of `bagsOf`. */
export const bagSize = words.length

/** Descriptions as bags of their attributes: 0/1 [R, bagSize]. */
export function bagsOf(descriptions: readonly Description[]): Tensor {
  return bags(
    descriptions.map(({ position, relation, ...own }) => [
      ...valueWords(own),
      ...(position ? [`position ${position}`] : []),
      ...(relation ? [`relation ${relation.kind}`, ...valueWords(relation.of).map((w) => `of ${w}`)] : []),
    ]),
  )
}

/** All attributes and positions of each object: [R, bagSize]. */
export function fullBags(rows: readonly Row[]): Tensor {
  const places = (object: SceneObject) => positions.filter((p) => hasPosition(object, p)).map((p) => `position ${p}`)
  return bags(rows.map(({ object }) => [...valueWords(object), ...places(object)]))
}

function valueWords(of: Description | SceneObject): string[] {
  return kindNames.flatMap((kind) => (of[kind] ? [`${kind} ${of[kind]}`] : []))
}

function bags(lists: readonly (readonly string[])[]): Tensor {
  const data = new Float32Array(lists.length * words.length)
  lists.forEach((list, r) => {
    for (const w of [always, ...list]) data[r * words.length + wordAt.get(w)!] = 1
  })
  return tensor(data, [lists.length, words.length])
}

/** An orthonormal code for each value of each kind, in the order of the bags: rows of a Hadamard matrix, [16, width]. */
export function attributeCodes(width: number): Tensor {
  const count = kindNames.reduce((n, kind) => n + kinds[kind].length, 0)
  const data = new Float32Array(count * width)
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < width; j++) data[i * width + j] = (isOdd((i + 1) & j) ? -1 : 1) / Math.sqrt(width)
  }
  return tensor(data, [count, width])
}

/** Averages over the cells of each place on a grid: [places, grid * grid]. */
export function placeCells(grid: number): Tensor {
  const inside = positions.map((place) =>
    Array.from({ length: grid * grid }, (_, i) => {
      const at = { x: ((i % grid) + 0.5) / grid, y: (Math.floor(i / grid) + 0.5) / grid }
      return hasPosition(at as SceneObject, place) ? 1 : 0
    }),
  )
  const shares = inside.map((row) => row.map((on) => on / row.reduce<number>((a, b) => a + b, 0)))
  return tensor(Float32Array.from(shares.flat()), [positions.length, grid * grid])
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
  return tensor(data, [batch.rows.length, width])
}

/** Index of the value that each row's object has for a kind: int64 [R]. */
export function valuesOf(rows: readonly Row[], kind: (typeof kindNames)[number]): Tensor {
  const values: readonly string[] = kinds[kind]
  return tensor(BigInt64Array.from(rows, ({ object }) => BigInt(values.indexOf(object[kind]))))
}

/** Pixels of all images in one tensor: those of InternViT (one tile each) or of SAM2. */
export function pixelsOf(batch: Batch, of: 'pixels' | 'samPixels'): Tensor {
  const one = batch.inputs[0]![of].length
  const data = new Float32Array(batch.inputs.length * one)
  batch.inputs.forEach((input, i) => {
    data.set(input[of], i * one)
  })
  const side = Math.sqrt(one / 3)
  return tensor(data, [batch.inputs.length, 3, side, side])
}
