// Descriptions: sets of attributes, which objects they fit, and which of them single one object out.
import type { RandomStream } from '../core/index.ts'
import {
  hasPosition,
  hasRelation,
  type MainColour,
  type Position,
  positions,
  type Relation,
  relations,
  type SceneObject,
  type Shape,
  type Size,
  type Texture,
} from './world.ts'

export interface Description {
  size?: Size
  texture?: Texture
  colour?: MainColour
  shape?: Shape
  position?: Position
  relation?: { kind: Relation; of: Description }
}

const attributeNames = ['size', 'texture', 'colour', 'shape', 'position', 'relation'] as const
export type AttributeName = (typeof attributeNames)[number]

/** Attributes a description uses. */
export function usedAttributes(description: Description): AttributeName[] {
  return attributeNames.filter((name) => description[name] !== undefined)
}

/** Does the description fit object `index`? `clear`: see hasRelation. */
export function fits(
  description: Description,
  objects: readonly SceneObject[],
  index: number,
  clear: boolean,
): boolean {
  const object = objects[index]!
  for (const name of ['size', 'texture', 'colour', 'shape'] as const) {
    if (description[name] !== undefined && description[name] !== object[name]) return false
  }
  if (description.position && !hasPosition(object, description.position)) return false
  const { relation } = description
  if (!relation) return true
  return objects.some(
    (other, j) =>
      j !== index && fits(relation.of, objects, j, clear) && hasRelation(object, relation.kind, other, clear),
  )
}

/** Objects the description could mean. */
export function candidates(description: Description, objects: readonly SceneObject[]): number[] {
  return objects.flatMap((_, i) => (fits(description, objects, i, false) ? [i] : []))
}

/** True if the description means object `target` and could mean no other; a reference object must be as clear. */
export function identifies(description: Description, objects: readonly SceneObject[], target: number): boolean {
  if (!fits(description, objects, target, true)) return false
  if (objects.some((_, i) => i !== target && fits(description, objects, i, false))) return false
  return !description.relation || candidates(description.relation.of, objects).length === 1
}

/** The fewest attributes of the description that still identify the target; of several smallest sets the first. */
export function minimalAttributes(
  description: Description,
  objects: readonly SceneObject[],
  target: number,
): AttributeName[] {
  const used = usedAttributes(description)
  let best = used
  for (let bits = 1; bits < 1 << used.length; bits++) {
    const subset = used.filter((_, i) => bits & (1 << i))
    const only: Description = Object.fromEntries(subset.map((name) => [name, description[name]]))
    if (subset.length < best.length && identifies(only, objects, target)) best = subset
  }
  return best
}

type Intrinsic = 'size' | 'texture' | 'colour' | 'shape'

// How often each choice of attributes is worded, before the unfit ones are dropped.
const intrinsicWeights: readonly (readonly [readonly Intrinsic[], number])[] = [
  [['colour', 'shape'], 6],
  [['size', 'colour', 'shape'], 4],
  [['texture', 'colour', 'shape'], 4],
  [['size', 'texture', 'colour', 'shape'], 2],
  [['size', 'shape'], 2],
  [['texture', 'shape'], 2],
  [['size', 'colour'], 1],
  [['texture', 'colour'], 1],
  [['colour'], 0.7],
  [['shape'], 0.7],
]
const placeWeights = { none: 6, position: 2, relation: 2.5 }
/** `plain` is rarely worth a word. */
const plainWeight = 0.25

/** A random unambiguous description of the target; undefined if the closed world has none. */
export function describe(
  objects: readonly SceneObject[],
  target: number,
  random: RandomStream,
): Description | undefined {
  const options: { description: Description; weight: number }[] = []
  const object = objects[target]!
  const kinds = Object.entries(placesOf(objects, target))
  for (const [names, weight] of intrinsicWeights) {
    const intrinsic = Object.fromEntries(names.map((name) => [name, object[name]])) as Description
    const base = weight * (intrinsic.texture === 'plain' ? plainWeight : 1)
    for (const [kind, places] of kinds) {
      const fit = places.map((place) => ({ ...intrinsic, ...place })).filter((d) => identifies(d, objects, target))
      const share = (base * placeWeights[kind as keyof typeof placeWeights]) / fit.length
      for (const description of fit) options.push({ description, weight: share })
    }
  }
  return pickWeighted(options, random)?.description
}

function placesOf(objects: readonly SceneObject[], target: number): Record<keyof typeof placeWeights, Description[]> {
  const object = objects[target]!
  const relation = objects.flatMap((other, j) => {
    if (j === target) return []
    const of: Description[] = [{ colour: other.colour, shape: other.shape }, { shape: other.shape }]
    const kinds = relations.filter((kind) => hasRelation(object, kind, other, true))
    return kinds.flatMap((kind) => of.map((reference) => ({ relation: { kind, of: reference } })))
  })
  const position = positions.filter((p) => hasPosition(object, p)).map((p) => ({ position: p }))
  return { none: [{}], position, relation }
}

function pickWeighted<T extends { weight: number }>(options: readonly T[], random: RandomStream): T | undefined {
  let left = random.uniform() * options.reduce((sum, option) => sum + option.weight, 0)
  for (const option of options) {
    left -= option.weight
    if (left < 0) return option
  }
  return options.at(-1)
}
