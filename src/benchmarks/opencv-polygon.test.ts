import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fillPolygon } from './opencv-polygon.ts'

interface Case {
  width: number
  height: number
  points: number[][]
  /** Runs of the row-major picture, beginning with zeros. */
  rowRuns: number[]
}

const cases = JSON.parse(readFileSync(new URL('fixtures/opencv-polygons.json', import.meta.url), 'utf8')) as Case[]

function expand({ rowRuns, width, height }: Case): Uint8Array {
  const out = new Uint8Array(width * height)
  let at = 0
  rowRuns.forEach((length, i) => {
    if (i % 2 === 1) out.fill(1, at, at + length)
    at += length
  })
  return out
}

test('240 random polygons, half of them reaching out of the picture, are drawn as OpenCV 4.6 drew them', () => {
  for (const [i, polygon] of cases.entries()) {
    const drawn = new Uint8Array(polygon.width * polygon.height)
    fillPolygon(drawn, polygon.width, polygon.height, polygon.points, 1)
    assert.deepEqual(drawn, expand(polygon), `polygon ${i}: ${JSON.stringify(polygon.points)}`)
  }
})

test('coordinates are cut towards zero, so that -0.9 is column 0', () => {
  const [a, b] = [new Uint8Array(25), new Uint8Array(25)]
  fillPolygon(
    a,
    5,
    5,
    [
      [-0.9, 0.9],
      [3.99, 0.2],
      [3.5, 3.7],
    ],
    7,
  )
  fillPolygon(
    b,
    5,
    5,
    [
      [0, 0],
      [3, 0],
      [3, 3],
    ],
    7,
  )
  assert.deepEqual(a, b)
})
