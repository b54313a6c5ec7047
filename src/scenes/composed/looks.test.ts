import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { maskFromDense } from '../../mask/index.ts'
import { looksOf, sayLooks } from './looks.ts'

const side = 50

/** A block of pixels from (x, y) on a blue picture; a third of its rows have a second colour. */
function looksOfBlock(x: number, y: number, length: number, main: number[], second = main) {
  const data = new Uint8Array(side * side * 3).map((_, i) => [10, 20, 230][i % 3]!)
  const inside = new Uint8Array(side * side)
  for (let row = 0; row < length; row++)
    for (let column = 0; column < length; column++) {
      const at = (y + row) * side + x + column
      inside[at] = 1
      data.set(row % 3 === 2 ? second : main, 3 * at)
    }
  return looksOf({ width: side, height: side, data }, maskFromDense(inside, side, side))
}

describe('looks of an object', () => {
  const named: [string, number[][]][] = [
    [
      'red',
      [
        [220, 30, 30],
        [200, 20, 60],
      ],
    ],
    ['orange', [[250, 150, 40]]],
    [
      'brown',
      [
        [120, 75, 40],
        [190, 150, 110],
      ],
    ],
    ['yellow', [[250, 230, 40]]],
    ['green', [[40, 160, 60]]],
    [
      'blue',
      [
        [40, 90, 220],
        [120, 200, 240],
      ],
    ],
    [
      'purple',
      [
        [150, 50, 200],
        [240, 90, 190],
      ],
    ],
    [
      'black',
      [
        [20, 20, 25],
        [70, 68, 66],
      ],
    ],
    ['grey', [[130, 128, 125]]],
    ['white', [[250, 248, 240]]],
  ]
  for (const [name, colours] of named)
    test(name, () => {
      for (const colour of colours) assert.equal(looksOfBlock(10, 10, 9, colour).colour, name, `${colour}`)
    })

  test('the colour of most pixels inside the mask counts, whatever is around them', () => {
    assert.equal(looksOfBlock(0, 0, 30, [220, 30, 30], [40, 160, 60]).colour, 'red')
  })

  test('large from a twenty-fifth of the picture on', () => {
    assert.equal(looksOfBlock(0, 0, 9, [0, 0, 0]).size, 'small')
    assert.equal(looksOfBlock(0, 0, 10, [0, 0, 0]).size, 'large')
  })

  test('the place is that of the middle of its box', () => {
    const places = [0, 20, 40].flatMap((y) => [0, 20, 40].map((x) => looksOfBlock(x, y, 10, [0, 0, 0]).position))
    const wanted = 'top left,top,top right,left,middle,right,bottom left,bottom,bottom right'
    assert.equal(places.join(), wanted)
  })

  test('some or all of them as text', () => {
    const looks = looksOfBlock(0, 20, 10, [120, 75, 40])
    assert.equal(sayLooks(looks), 'the large brown object on the left')
    assert.equal(sayLooks({ size: 'small' }), 'the small object')
    assert.equal(sayLooks({ colour: 'red', position: 'top left' }), 'the red object in the top left corner')
  })
})
