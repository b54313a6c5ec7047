import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Mismatch } from '../core/index.ts'
import { encodeRle, maskArea, maskBox, maskFromRuns, maskUnion, polygonsToMask } from './index.ts'

test('polygons rasterise to the runs and strings of pycocotools', () => {
  const cases: [number[], string, string][] = [
    [[2, 2, 7, 2, 7, 6, 2, 6], '22 4 6 4 6 4 6 4 6 4 34', 'f0460000000l0'],
    [[2.5, 2.5, 7.5, 2.5, 7.5, 6.5, 2.5, 6.5], '33 4 6 4 6 4 6 4 6 4 23', 'Q1460000000a0'],
    [[1, 1, 8, 1, 4, 8], '11 1 9 3 7 6 4 6 4 4 6 3 7 1 28', ';192N3M00N2O1Ne0'],
    [
      [1.2, 3.7, 6.9, 0.4, 9.3, 5.5, 4.4, 9.1, 0.3, 7.7],
      '7 1 6 4 5 6 3 7 3 7 2 7 3 7 3 6 7 2 14',
      '7163O2N100O0100O4L7',
    ],
    [[-3, -3, 12, -3, 12, 12, -3, 12], '0 100', '0T3'],
    [[20, 20, 30, 20, 25, 30], '100', 'T3'],
    [[3, 3, 3, 3, 3, 3, 3, 3], '100', 'T3'],
  ]
  for (const [polygon, runs, counts] of cases) {
    const mask = polygonsToMask([polygon], 10, 10)
    assert.equal([...mask.counts].join(' '), runs)
    assert.equal(encodeRle(mask).counts, counts)
  }
})

test('products and sums are rounded one by one, as in builds of pycocotools for x86-64', () => {
  const mask = polygonsToMask([[92.61, 62.52, 68.19, 47.74, 127.45, 11.42]], 71, 146)
  const expected = [
    'bj42T2101N1O2O1N101N1O2O1N101N1O2O1N1O2O0O2O1N1O2O0O01O0O101N100O2O0O2O0O101O0O2O0O101N101N100O2O0O101N101N10001N',
    '101N10jY1',
  ]
  assert.equal(encodeRle(mask).counts, expected.join(''))
})

test('four numbers are a box, several polygons are one union', () => {
  const box = polygonsToMask([[2, 2, 5, 4]], 10, 10)
  assert.deepEqual(box, polygonsToMask([[2, 2, 2, 6, 7, 6, 7, 2]], 10, 10))
  assert.deepEqual(maskBox(box), [2, 2, 5, 4])
  const triangle = [1, 1, 8, 1, 4, 8]
  const both = polygonsToMask([[2, 2, 5, 4], triangle], 10, 10)
  assert.deepEqual(both, maskUnion(box, polygonsToMask([triangle], 10, 10)))
})

test('an axis-parallel rectangle of whole pixels has its own area, wherever it lies', () => {
  const n = fc.integer({ min: -5, max: 25 })
  fc.assert(
    fc.property(n, n, n, n, (a, b, c, d) => {
      const [x0, x1] = [Math.min(a, b), Math.max(a, b)]
      const [y0, y1] = [Math.min(c, d), Math.max(c, d)]
      const mask = polygonsToMask([[x0, y0, x1, y0, x1, y1, x0, y1]], 15, 20)
      const clip = (v: number, most: number) => Math.min(Math.max(v, 0), most)
      assert.equal(maskArea(mask), (clip(x1, 20) - clip(x0, 20)) * (clip(y1, 15) - clip(y0, 15)))
    }),
  )
})

test('any finite polygon gives a valid mask', () => {
  const coordinate = fc.double({ min: -50, max: 50, noNaN: true })
  fc.assert(
    fc.property(fc.array(coordinate, { minLength: 6, maxLength: 14 }), (points) => {
      const mask = polygonsToMask([points], 9, 11)
      assert.deepEqual(maskFromRuns([...mask.counts], 9, 11), mask)
    }),
  )
})

test('bad polygons are a Mismatch', () => {
  assert.throws(() => polygonsToMask([], 4, 4), Mismatch)
  assert.throws(() => polygonsToMask([[1, 2, 3]], 4, 4), Mismatch)
  assert.throws(() => polygonsToMask([[1, 2, 3, 4, 5, Number.NaN]], 4, 4), Mismatch)
  assert.throws(() => polygonsToMask([[1, 2, 3, 4, 5, 1e300]], 4, 4), Mismatch)
  assert.throws(() => polygonsToMask([[1, 1, 2, 2, 3, 1]], 0, 4), Mismatch)
})

test('outlines of any length cost little: too long ones are refused before they are walked', {
  timeout: 600_000,
}, () => {
  const zigzag = Array.from({ length: 400 }, (_, i) => [(i % 2) * 1e6 * (i % 4 < 2 ? 1 : -1), i]).flat()
  assert.throws(() => polygonsToMask([zigzag], 480, 640), /outlines of at most 4000000 pixels together/)
  const dots = Array.from({ length: 10_001 }, () => [1, 1, 2, 2, 3, 3])
  assert.throws(() => polygonsToMask(dots, 480, 640), /at most 10000 polygons, got 10001/)
  const started = Date.now()
  const most = polygonsToMask(
    dots.slice(1).map((_, i) => [i % 600, i % 400, 5, 5]),
    480,
    640,
  )
  assert.ok(maskArea(most) > 1000 && Date.now() - started < 200_000)
})

test('a union in pairs is the union one after the other', () => {
  const point = fc.tuple(fc.integer({ min: -3, max: 25 }), fc.integer({ min: -3, max: 25 }))
  const polygon = fc.array(point, { minLength: 3, maxLength: 6 }).map((points) => points.flat())
  fc.assert(
    fc.property(fc.array(polygon, { minLength: 1, maxLength: 9 }), (polygons) => {
      const parts = polygons.map((p) => polygonsToMask([p], 20, 20))
      assert.deepEqual(polygonsToMask(polygons, 20, 20), maskUnion(parts[0]!, ...parts.slice(1)))
    }),
  )
})
