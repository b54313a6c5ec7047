// Chooses the objects of a scene and their positions. At least one distractor shares an attribute with the target; no object touches
// another.
import { type RandomStream, shuffled } from '../core/index.ts'
import { colours, isClearCoordinate, radiusRange, type SceneObject, shapes, sizes, textures } from './world.ts'

type Looks = Pick<SceneObject, 'colour' | 'shape' | 'size' | 'texture'>

/** Free space around objects and along the border. */
const gap = 0.015

export interface Layout {
  objects: SceneObject[]
  target: number
}

/** A layout, or undefined if the objects found no room in a fair number of tries. */
export function makeLayout(count: number, random: RandomStream): Layout | undefined {
  const looks = chooseLooks(count, random)
  const objects = place(looks, random)
  if (!objects) return undefined
  const order = shuffled([...looks.keys()], random)
  return { objects: order.map((i) => objects[i]!), target: order.indexOf(0) }
}

/** The target first. */
function chooseLooks(count: number, random: RandomStream): Looks[] {
  const target = randomLooks(random)
  const distractors = [nearDistractors(target, random), farDistractors(target, random)].flat()
  return [target, ...distractors.slice(0, count - 1)]
}

/** One or two distractors that share colour, shape or both with the target. */
function nearDistractors(target: Looks, random: RandomStream): Looks[] {
  const sameColour = { ...randomLooks(random), colour: target.colour, shape: other(shapes, target.shape, random) }
  const sameShape = { ...randomLooks(random), shape: target.shape, colour: other(colours, target.colour, random) }
  const twin = { ...target, ...twinDifference(target, random) }
  const kind = random.uniform()
  if (kind < 0.6) return shuffled([sameColour, sameShape], random)
  return kind < 0.8 ? [twin, random.uniform() < 0.5 ? sameColour : sameShape] : [twin]
}

/** Twins differ in size, in texture, or in their place alone. */
function twinDifference(target: Looks, random: RandomStream): Partial<Looks> {
  const kind = random.uniform()
  if (kind < 0.4) return { size: other(sizes, target.size, random) }
  return kind < 0.8 ? { texture: other(textures, target.texture, random) } : {}
}

/** Distractors of any looks, half of them with the target's size or texture. */
function farDistractors(target: Looks, random: RandomStream): Looks[] {
  return [0, 1].map(() => {
    const looks = randomLooks(random)
    return random.uniform() < 0.5 ? { ...looks, size: target.size, texture: target.texture } : looks
  })
}

function randomLooks(random: RandomStream): Looks {
  return {
    colour: random.pick(colours),
    shape: random.pick(shapes),
    size: random.pick(sizes),
    texture: random.uniform() < 0.4 ? 'plain' : random.pick(textures),
  }
}

function other<T>(items: readonly T[], than: T, random: RandomStream): T {
  return random.pick(items.filter((item) => item !== than))
}

/** Large ones first: they find room while there is some. The result keeps the order of `looks`. */
function place(looks: readonly Looks[], random: RandomStream): SceneObject[] | undefined {
  const placed: SceneObject[] = []
  const out: SceneObject[] = []
  const order = [...looks.keys()].sort((a, b) => sizes.indexOf(looks[b]!.size) - sizes.indexOf(looks[a]!.size))
  for (const i of order) {
    const object = findRoom(looks[i]!, placed, random)
    if (!object) return undefined
    placed.push(object)
    out[i] = object
  }
  return out
}

function findRoom(looks: Looks, placed: readonly SceneObject[], random: RandomStream): SceneObject | undefined {
  const [low, high] = radiusRange[looks.size]
  const radius = low + (high - low) * random.uniform()
  const span = 1 - 2 * (radius + gap)
  for (let attempt = 0; attempt < 60; attempt++) {
    const x = radius + gap + span * random.uniform()
    const y = radius + gap + span * random.uniform()
    const clear = isClearCoordinate(x) && isClearCoordinate(y)
    if (clear && placed.every((o) => Math.hypot(o.x - x, o.y - y) > o.radius + radius + gap)) {
      return { ...looks, x, y, radius }
    }
  }
  return undefined
}
