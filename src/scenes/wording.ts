// Descriptions into words, in varied ways.
import type { RandomStream } from '../core/index.ts'
import type { Description } from './describe.ts'
import { colours, type Position, positions, type Relation, type Size, shapes, type Texture, textures } from './world.ts'

export const sizeWords: Readonly<Record<Size, readonly string[]>> = {
  small: ['small', 'little'],
  large: ['large', 'big'],
}
const textureTails: Readonly<Record<Texture, string | undefined>> = {
  plain: undefined,
  striped: 'with stripes',
  dotted: 'with dots',
}
export const anyNoun = ['object', 'shape', 'thing']
/** Words of a caption that describe nothing. */
export const silentWords = ['the', 'a', 'an', 'that', 'is', ...anyNoun]
const relationWords: Readonly<Record<Relation, readonly string[]>> = {
  'left of': ['to the left of', 'left of'],
  'right of': ['to the right of', 'right of'],
  above: ['above'],
  below: ['below', 'under'],
}

export function positionPhrases(position: Position): readonly string[] {
  if (position === 'middle') return ['in the middle', 'in the center']
  if (position.includes(' ')) return [`in the ${position} corner`, `at the ${position}`]
  if (position === 'left' || position === 'right') return [`on the ${position}`, `on the ${position} side`]
  return [`at the ${position}`, `near the ${position}`]
}

/** Every phrase that can follow a noun without naming another object. */
const placePhrases: readonly string[] = positions.flatMap(positionPhrases)

/** One of the wordings of a description. */
export function word(description: Description, random: RandomStream): string {
  const { texture, colour, position, relation } = description
  const tail: string[] = []
  const adjectives: string[] = []
  if (description.size) adjectives.push(random.pick(sizeWords[description.size]))
  const textureTail = texture && textureTails[texture]
  if (textureTail && random.uniform() < 0.3) tail.push(textureTail)
  else if (texture) adjectives.push(texture)
  if (colour && tail.length === 0 && random.uniform() < 0.1) tail.push(`that is ${colour}`)
  else if (colour) adjectives.push(colour)
  if (position) tail.push(random.pick(positionPhrases(position)))
  if (relation)
    tail.push(
      random.pick(relationWords[relation.kind]),
      ['the', relation.of.colour, relation.of.shape].filter((part) => part !== undefined).join(' '),
    )
  const phrase = [...adjectives, description.shape ?? random.pick(anyNoun), ...tail].join(' ')
  return `${random.uniform() < 0.75 ? 'the' : /^[aeiou]/.test(phrase) ? 'an' : 'a'} ${phrase}`
}

/** Every word a caption can contain. */
export const captionWords: readonly string[] = [
  ...new Set(
    [
      ...silentWords,
      ...Object.values(sizeWords).flat(),
      ...textures,
      ...Object.values(textureTails).flatMap((tail) => tail ?? []),
      ...colours,
      ...shapes,
      ...placePhrases,
      ...Object.values(relationWords).flat(),
    ].flatMap((phrase) => phrase.split(' ')),
  ),
].sort()
