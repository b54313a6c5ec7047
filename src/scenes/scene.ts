// A scene of the closed world with its caption: a pure function of (seed, index, options).
import { assert, Mismatch, stream, streamId } from '../core/index.ts'
import type { RgbImage } from '../image/index.ts'
import { type Mask, maskFromDense } from '../mask/index.ts'
import { type AttributeName, type Description, describe, minimalAttributes } from './describe.ts'
import { covers, draw } from './draw.ts'
import { makeLayout } from './layout.ts'
import { word } from './wording.ts'
import type { SceneObject } from './world.ts'

interface SceneOptions {
  /** Side of the square image in pixels. Default 112. */
  size?: number
  /** Default 2. */
  minObjects?: number
  /** Default 4. */
  maxObjects?: number
}

/** A scene without its pixels. */
interface ScenePlan {
  id: string
  objects: readonly SceneObject[]
  /** Index of the object the caption means. */
  target: number
  caption: string
  description: Description
  /** The fewest attributes of the caption that still single the target out. */
  minimalAttributes: readonly AttributeName[]
}

export interface Scene extends ScenePlan {
  image: RgbImage
  /** Row-major, 1 on the target's pixels. */
  mask: Uint8Array
  /** Row-major, 0 background, k + 1 object k. */
  owner: Uint8Array
}

/** Scene `index` of the endless set `seed`. Objects and caption do not depend on the image size. */
export function makeScene(seed: number, index: number, options: SceneOptions = {}): Scene {
  const plan = planScene(seed, index, options)
  const { size } = checkedOptions(options)
  const { image, owner } = draw(plan.objects, size, stream(streamId.scenes, seed, index, 'pixels'))
  const mask = owner.map((k) => (k === plan.target + 1 ? 1 : 0))
  return { ...plan, image, mask, owner }
}

/** Objects and caption of a scene, for those who need no pixels. */
export function planScene(seed: number, index: number, options: SceneOptions = {}): ScenePlan {
  const { minObjects, maxObjects } = checkedOptions(options)
  for (let attempt = 0; attempt < 200; attempt++) {
    const random = stream(streamId.scenes, seed, index, attempt)
    const layout = makeLayout(minObjects + random.below(maxObjects - minObjects + 1), random)
    const description = layout && describe(layout.objects, layout.target, random)
    if (!layout || !description || !hasRegionCell(layout.objects[layout.target]!)) continue
    const { objects, target } = layout
    const caption = word(description, random)
    const needed = minimalAttributes(description, objects, target)
    return { id: `scene-${seed}-${index}`, objects, target, caption, description, minimalAttributes: needed }
  }
  return assert(false, `scene ${seed}/${index} finds a layout and a caption in 200 attempts`) as never
}

/** Cells of a region prompt per side in the miniature model. */
const regionGrid = 8

/** A region prompt takes one point per cell, its upper left pixel: an object between those points would be invisible. */
function hasRegionCell(object: SceneObject): boolean {
  const halfPixel = 0.5 / 112
  for (let row = 0; row < regionGrid; row++) {
    for (let column = 0; column < regionGrid; column++) {
      if (covers(object, column / regionGrid + halfPixel, row / regionGrid + halfPixel)) return true
    }
  }
  return false
}

function checkedOptions(options: SceneOptions): Required<SceneOptions> {
  const full = { size: 112, minObjects: 2, maxObjects: 4, ...options }
  const check = (field: keyof SceneOptions, low: number, high: number) => {
    if (Number.isInteger(full[field]) && full[field] >= low && full[field] <= high) return
    throw new Mismatch({ where: 'scenes', field, expected: `an integer from ${low} to ${high}`, got: full[field] })
  }
  check('size', 32, 4096)
  check('minObjects', 2, 4)
  check('maxObjects', full.minObjects, 4)
  return full
}

/** A generated picture with the mask of one object and the text that describes it; the data room's Example has the same fields. */
export interface LabelledPicture {
  id: string
  image: RgbImage
  mask: Mask
  caption: string
  meta: Record<string, unknown>
}

/** The scene as a training example. */
export function sceneExample(scene: Scene): LabelledPicture {
  const { width, height } = scene.image
  return {
    id: scene.id,
    image: scene.image,
    mask: maskFromDense(scene.mask, height, width),
    caption: scene.caption,
    meta: { objects: scene.objects, target: scene.target, minimalAttributes: scene.minimalAttributes },
  }
}
