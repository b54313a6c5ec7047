import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stream } from '../core/index.ts'
import { maskFromDense, maskIou } from '../mask/index.ts'
import { iouReward, maskConfidenceReward } from './builtin.ts'
import { IouConfig } from './config.ts'
import { iouOf, resizeMaskBilinear } from './iou.ts'

const mask = (...bits: number[]) => maskFromDense(Uint8Array.from(bits), 1, bits.length)

test('the table of values', () => {
  const rows: [number[], number[], number][] = [
    [[1, 0, 1, 1], [1, 0, 1, 1], 1],
    [[1, 1, 0, 0], [0, 0, 1, 1], 0],
    [[0, 0, 0, 0], [0, 0, 0, 0], 0],
    [[0, 0, 0, 0], [0, 1, 0, 0], 0],
    [[1, 1, 0, 0], [1, 0, 1, 0], 1 / 3],
  ]
  for (const [a, b, value] of rows) {
    assert.equal(iouOf(mask(...a), mask(...b), IouConfig.parse({})), value)
    assert.equal(iouOf(mask(...b), mask(...a), IouConfig.parse({})), value)
  }
  assert.equal(iouOf(mask(0, 0), mask(0, 0), IouConfig.parse({ empty: 1 })), 1)
})

test('runs give the doubles of a count over pixels on 1,000 random pairs', () => {
  const random = stream('iou')
  for (let n = 0; n < 1000; n++) {
    const height = 1 + random.below(40)
    const width = 1 + random.below(40)
    const fill = () => {
      const density = random.uniform()
      return Uint8Array.from({ length: height * width }, () => (random.uniform() < density ? 1 + random.below(255) : 0))
    }
    const a = fill()
    const b = fill()
    const both = a.reduce((s, v, i) => s + (v && b[i] ? 1 : 0), 0)
    const either = a.reduce((s, v, i) => s + (v || b[i] ? 1 : 0), 0)
    const value = either === 0 ? 0 : both / either
    assert.equal(maskIou(maskFromDense(a, height, width), maskFromDense(b, height, width)), value)
  }
})

test('masks of different sizes are an error, not a broadcast', () => {
  const row = maskFromDense(new Uint8Array(4), 1, 4)
  const square = maskFromDense(new Uint8Array(16), 4, 4)
  assert.throws(() => iouOf(row, square, IouConfig.parse({})), /size: expected two masks of one size/)
})

test('a resize to the same size changes nothing, and a doubled mask has the same overlap', () => {
  const a = maskFromDense(Uint8Array.of(1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 4, 4)
  const b = maskFromDense(Uint8Array.of(1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 4, 4)
  assert.equal(resizeMaskBilinear(a, 4), a)
  assert.equal(iouOf(a, b, IouConfig.parse({ resolution: 8 })), 0.5)
})

test('masks are compared at the resolution that is asked for, whatever sizes they have', () => {
  const whole = maskFromDense(new Uint8Array(16).fill(1), 4, 4)
  const withHole = maskFromDense(
    Uint8Array.from({ length: 16 }, (_, i) => (i === 5 ? 0 : 1)),
    4,
    4,
  )
  assert.equal(iouOf(whole, withHole, IouConfig.parse({})), 15 / 16)
  assert.equal(iouOf(whole, withHole, IouConfig.parse({ resolution: 2 })), 1)
  assert.equal(iouOf(mask(1, 1), whole, IouConfig.parse({ resolution: 2 })), 1)
})

test('no mask is a true 0, a mask that was never computed is an error', async () => {
  const reward = iouReward('maskPrime')
  const given = mask(1, 0)
  assert.equal(reward.score({ id: 's', reference: '', given, maskPrime: null }), 0)
  assert.equal(reward.score({ id: 's', reference: '', given, maskPrime: given }), 1)
  assert.throws(() => reward.score({ id: 's7', reference: '', given }), /sample s7: maskPrime/)
})

test('an answer without a mask has overlap 0 and confidence 0; with one, confidence is overlap times probability', () => {
  const answer = { id: 'x', reference: '', given: mask(1, 0), maskPrime: null, maskConfidence: null }
  assert.equal(iouReward('maskPrime').score(answer), 0)
  const sure = maskConfidenceReward('maskPrime')
  assert.equal(sure.score(answer), 0)
  assert.equal(sure.score({ ...answer, maskPrime: mask(1, 1), maskConfidence: { iou: 0.5, object: 0.5 } }), 0.25)
})

test('a resized pixel that is half covered is outside, and two empty masks keep their value', () => {
  const left = maskFromDense(
    Uint8Array.from({ length: 16 }, (_, i) => (i % 4 === 0 ? 1 : 0)),
    4,
    4,
  )
  assert.equal(maskIou(resizeMaskBilinear(left, 2), maskFromDense(new Uint8Array(4), 2, 2), 1), 1)
  const empty = maskFromDense(new Uint8Array(16), 4, 4)
  assert.equal(iouOf(empty, empty, IouConfig.parse({ resolution: 2, empty: 0.5 })), 0.5)
})
