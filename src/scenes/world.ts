// The closed world: what objects can be, where they can lie, and what is true of them. Lengths are fractions of the
// image side, so a scene is the same at any size; x grows to the right, y downwards.

export const colours = ['red', 'green', 'blue', 'yellow', 'purple', 'orange'] as const
export const shapes = ['circle', 'square', 'triangle', 'cross', 'star'] as const
export const sizes = ['small', 'large'] as const
export const textures = ['plain', 'striped', 'dotted'] as const
export const relations = ['left of', 'right of', 'above', 'below'] as const
export const positions = [
  'left',
  'right',
  'top',
  'bottom',
  'middle',
  'top left',
  'top right',
  'bottom left',
  'bottom right',
] as const

/** Of composed objects. */
export const mainColours = [...colours, 'brown', 'black', 'white', 'grey'] as const
export type Colour = (typeof colours)[number]
export type MainColour = (typeof mainColours)[number]
export type Shape = (typeof shapes)[number]
export type Size = (typeof sizes)[number]
export type Texture = (typeof textures)[number]
export type Position = (typeof positions)[number]
export type Relation = (typeof relations)[number]

export interface SceneObject {
  readonly colour: Colour
  readonly shape: Shape
  readonly size: Size
  readonly texture: Texture
  /** Centre. */
  readonly x: number
  readonly y: number
  /** No pixel of the object is farther from the centre. */
  readonly radius: number
}

/** Radius ranges; the gap between them keeps small and large apart. */
export const radiusRange: Readonly<Record<Size, readonly [number, number]>> = {
  small: [0.115, 0.13],
  large: [0.18, 0.205],
}

// No centre lies between a low and a central coordinate, nor between a central and a high one: place words are never a
// matter of a pixel.
const lowEdge = 0.38
const highEdge = 0.62
const centralFrom = 0.44
const centralTo = 0.56

export function isClearCoordinate(value: number): boolean {
  return value <= lowEdge || value >= highEdge || (value >= centralFrom && value <= centralTo)
}

function isCentral(value: number): boolean {
  return value > lowEdge && value < highEdge
}

export type Place = Pick<SceneObject, 'x' | 'y'>

const positionTest: Readonly<Record<Position, (o: Place) => boolean>> = {
  left: (o) => o.x <= lowEdge,
  right: (o) => o.x >= highEdge,
  top: (o) => o.y <= lowEdge,
  bottom: (o) => o.y >= highEdge,
  middle: (o) => isCentral(o.x) && isCentral(o.y),
  'top left': (o) => o.y <= lowEdge && o.x <= lowEdge,
  'top right': (o) => o.y <= lowEdge && o.x >= highEdge,
  'bottom left': (o) => o.y >= highEdge && o.x <= lowEdge,
  'bottom right': (o) => o.y >= highEdge && o.x >= highEdge,
}

export function hasPosition(object: Place, position: Position): boolean {
  return positionTest[position](object)
}

/** The most exact of the positions of a place: every place has one. */
export function positionAt(place: Place): Position {
  return positions.findLast((position) => hasPosition(place, position))!
}

/**
 * Does `a` lie so of `b`? `clear` asks for what a person would say at a glance (far enough, and mainly in that direction);
 * without it for what could be meant at all. A caption is unambiguous if the first holds for its object and the second
 * for no other.
 */
export function hasRelation(a: SceneObject, relation: Relation, b: SceneObject, clear: boolean): boolean {
  const [along, across] = offsets(a, relation, b)
  return clear ? along >= 0.2 && along >= across : along > 0.05
}

/** How far `a` lies from `b` in the relation's direction, and across it. */
function offsets(a: SceneObject, relation: Relation, b: SceneObject): [number, number] {
  const dx = a.x - b.x
  const dy = a.y - b.y
  if (relation === 'left of') return [-dx, Math.abs(dy)]
  if (relation === 'right of') return [dx, Math.abs(dy)]
  if (relation === 'above') return [-dy, Math.abs(dx)]
  return [dy, Math.abs(dx)]
}
