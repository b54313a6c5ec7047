// Descriptions into words, in varied ways, and words back into descriptions.
import type { RandomStream } from '../core/index.ts'
import type { Description } from './describe.ts'
import {
  type Colour,
  colours,
  type Position,
  positions,
  type Relation,
  type Shape,
  type Size,
  shapes,
  type Texture,
} from './world.ts'

const sizeWords: Readonly<Record<Size, readonly string[]>> = { small: ['small', 'little'], large: ['large', 'big'] }
const textureTails: Readonly<Record<Texture, string | undefined>> = {
  plain: undefined,
  striped: 'with stripes',
  dotted: 'with dots',
}
const anyNoun = ['object', 'shape', 'thing']
const relationWords: Readonly<Record<Relation, readonly string[]>> = {
  'left of': ['to the left of', 'left of'],
  'right of': ['to the right of', 'right of'],
  above: ['above'],
  below: ['below', 'under'],
}

function positionPhrases(position: Position): readonly string[] {
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
  if (relation) tail.push(random.pick(relationWords[relation.kind]), `the ${nounPhrase(relation.of)}`)
  const phrase = [...adjectives, description.shape ?? random.pick(anyNoun), ...tail].join(' ')
  return `${random.uniform() < 0.75 ? 'the' : articleFor(phrase)} ${phrase}`
}

function nounPhrase(description: Description): string {
  return [description.colour, description.shape].filter((part) => part !== undefined).join(' ')
}

function articleFor(phrase: string): string {
  return /^[aeiou]/.test(phrase) ? 'an' : 'a'
}

const sizeOf = new Map(Object.entries(sizeWords).flatMap(([size, words]) => words.map((w) => [w, size as Size])))
const textureOf = new Map<string, Texture>([
  ['plain', 'plain'],
  ['striped', 'striped'],
  ['dotted', 'dotted'],
  ['stripes', 'striped'],
  ['dots', 'dotted'],
])
const silentWords = new Set(['the', 'a', 'an', 'with', 'that', 'is', ...anyNoun])

/**
 * The description a caption words; null for a text that is none of this world: an unknown word, two colours for one
 * object, no word about the object at all.
 */
export function parseCaption(text: string): Description | null {
  const plain = text.trim().toLowerCase().replace(/\.$/, '').replace(/\s+/g, ' ')
  const related = /^(.+?) (?:(?:to the )?(left|right) of|(above|below|under)) (.+)$/.exec(plain)
  if (!related) return parsePhrase(plain)
  const [, head, side, vertical, reference] = related
  const description = parsePhrase(head!)
  const of = parsePhrase(reference!)
  if (!description || !of) return null
  const kind: Relation = side ? `${side as 'left' | 'right'} of` : vertical === 'above' ? 'above' : 'below'
  return { ...description, relation: { kind, of } }
}

function parsePhrase(phrase: string): Description | null {
  const description: Description = {}
  let rest = phrase
  for (const position of positions) {
    const place = positionPhrases(position)
      .filter((p) => rest.endsWith(` ${p}`))
      .sort((a, b) => b.length - a.length)[0]
    if (!place || description.position) continue
    description.position = position
    rest = rest.slice(0, -place.length - 1)
  }
  let nouns = 0
  for (const w of rest.split(' ')) {
    if (anyNoun.includes(w) || shapes.includes(w as Shape)) nouns++
    if (!addWord(description, w)) return null
  }
  return nouns === 1 ? description : null
}

/** Takes one word in; false if it is unknown or says what is said already. */
function addWord(description: Description, w: string): boolean {
  const set = <K extends 'size' | 'texture' | 'colour' | 'shape'>(name: K, value: Description[K]): boolean => {
    if (description[name] !== undefined) return false
    description[name] = value
    return true
  }
  if (sizeOf.has(w)) return set('size', sizeOf.get(w))
  if (textureOf.has(w)) return set('texture', textureOf.get(w))
  if (colours.includes(w as Colour)) return set('colour', w as Colour)
  if (shapes.includes(w as Shape)) return set('shape', w as Shape)
  return silentWords.has(w)
}

/** Every word a caption can contain. */
export const captionWords: readonly string[] = [
  ...new Set(
    [
      ...silentWords,
      ...sizeOf.keys(),
      ...textureOf.keys(),
      ...colours,
      ...shapes,
      ...placePhrases,
      ...Object.values(relationWords).flat(),
    ].flatMap((phrase) => phrase.split(' ')),
  ),
].sort()
