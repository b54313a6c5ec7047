// Words of a caption of the generated world back into the description they come from.
import type { Description } from '../../src/scenes/describe.ts'
import { anyNoun, positionPhrases, silentWords, sizeWords } from '../../src/scenes/wording.ts'
import {
  type Colour,
  colours,
  positions,
  type Relation,
  type Shape,
  type Size,
  shapes,
  type Texture,
} from '../../src/scenes/world.ts'

const sizeOf = new Map(Object.entries(sizeWords).flatMap(([size, words]) => words.map((w) => [w, size as Size])))
const textureOf = new Map<string, Texture>([
  ['plain', 'plain'],
  ['striped', 'striped'],
  ['dotted', 'dotted'],
  ['stripes', 'striped'],
  ['dots', 'dotted'],
])

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
  return w === 'with' || silentWords.includes(w)
}
