import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { parseCaption } from '../../tests/support/parse-caption.ts'
import { stream, streamId } from '../core/index.ts'
import type { Description } from './describe.ts'
import { captionWords, word } from './wording.ts'
import { colours, positions, relations, shapes, sizes, textures } from './world.ts'

describe('parseCaption', () => {
  const cases: [string, Description][] = [
    ['the small red circle', { size: 'small', colour: 'red', shape: 'circle' }],
    ['A striped blue square on the left.', { texture: 'striped', colour: 'blue', shape: 'square', position: 'left' }],
    ['an orange star with dots', { colour: 'orange', shape: 'star', texture: 'dotted' }],
    ['the big thing in the top left corner', { size: 'large', position: 'top left' }],
    ['the object that is green at the top', { colour: 'green', position: 'top' }],
    [
      'the green triangle above the red circle',
      { colour: 'green', shape: 'triangle', relation: { kind: 'above', of: { colour: 'red', shape: 'circle' } } },
    ],
    ['a cross to the left of the star', { shape: 'cross', relation: { kind: 'left of', of: { shape: 'star' } } }],
    ['a cross under the star', { shape: 'cross', relation: { kind: 'below', of: { shape: 'star' } } }],
  ]
  for (const [caption, description] of cases) {
    test(`"${caption}" is understood`, () => assert.deepEqual(parseCaption(caption), description))
  }

  for (const caption of [
    '',
    'the red blue circle',
    'the red',
    'a dog',
    'the circle square',
    'the red circle above',
    '[SEG]',
  ]) {
    test(`"${caption}" is not a caption`, () => assert.equal(parseCaption(caption), null))
  }
})

describe('word', () => {
  test('whatever wording is drawn for a description, it is understood as that description', () => {
    const random = stream(streamId.test, 'wording')
    const maybe = <T>(items: readonly T[]): T | undefined => (random.uniform() < 0.5 ? random.pick(items) : undefined)
    for (let i = 0; i < 2000; i++) {
      const reference = { shape: random.pick(shapes), ...(random.uniform() < 0.7 && { colour: random.pick(colours) }) }
      const place = random.below(3)
      const description: Description = {
        size: maybe(sizes),
        texture: maybe(textures),
        colour: maybe(colours),
        shape: maybe(shapes),
        ...(place === 1 && { position: random.pick(positions) }),
        ...(place === 2 && { relation: { kind: random.pick(relations), of: reference } }),
      }
      const text = word(description, random)
      assert.deepEqual(parseCaption(text), JSON.parse(JSON.stringify(description)), text)
      for (const w of text.split(' ')) assert.ok(captionWords.includes(w), w)
    }
  })

  test('the vocabulary has at most 60 words', () => {
    assert.ok(captionWords.length <= 60, `${captionWords.length}`)
  })
})
