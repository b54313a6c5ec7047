import assert from 'node:assert/strict'
import { test } from 'node:test'
import { stream } from '../core/index.ts'
import { bootstrapInterval, bootstrapRatioInterval, quantile } from './statistics.ts'

test('the interval of a large normal sample is mean +- 1.96 standard errors', () => {
  const random = stream(1, 'statistics test')
  const values = Array.from({ length: 400 }, () => 3 + 2 * random.normal())
  const { mean, low, high } = bootstrapInterval(values, { seed: 5 })
  const trueMean = values.reduce((a, b) => a + b, 0) / 400
  const error = Math.sqrt(values.reduce((a, b) => a + (b - trueMean) ** 2, 0) / 400 / 400)
  assert.ok(Math.abs(mean - trueMean) < 1e-12)
  assert.ok(Math.abs((mean - low) / error - 1.96) < 0.15)
  assert.ok(Math.abs((high - mean) / error - 1.96) < 0.15)
})

test('about 95 % of the intervals cover the true mean', () => {
  let covered = 0
  for (let trial = 0; trial < 200; trial++) {
    const random = stream(trial, 'coverage')
    const values = Array.from({ length: 60 }, () => random.uniform())
    const { low, high } = bootstrapInterval(values, { seed: trial, resamples: 400 })
    if (low <= 0.5 && 0.5 <= high) covered++
  }
  assert.ok(covered >= 180 && covered <= 199, `${covered} of 200`)
})

test('the seed alone decides the interval', () => {
  const values = [0.1, 0.5, 0.2, 0.9, 0.4]
  const once = bootstrapInterval(values, { seed: 3 })
  assert.deepEqual(bootstrapInterval(values, { seed: 3 }), once)
  assert.notDeepEqual(bootstrapInterval(values, { seed: 4 }), once)
})

test('one value has a mean and no interval, no value has no mean', () => {
  assert.deepEqual(bootstrapInterval([0.25], { seed: 0 }), { mean: 0.25, low: Number.NaN, high: Number.NaN })
  assert.deepEqual(bootstrapRatioInterval([3], [4], { seed: 0 }), { mean: 0.75, low: Number.NaN, high: Number.NaN })
  assert.ok(Number.isNaN(bootstrapInterval([], { seed: 0 }).mean))
})

test('the ratio is of the sums, not the mean of the ratios', () => {
  const { mean, low, high } = bootstrapRatioInterval([1, 30, 5], [10, 40, 10], { seed: 0 })
  assert.equal(mean, 36 / 60)
  assert.ok(low >= 0.1 && low < mean && mean < high && high <= 0.75)
})

test('a resample that has no record of the metric is left out', () => {
  const parts = { mean: 0.5, low: 0.5, high: 0.5 }
  assert.deepEqual(bootstrapRatioInterval([1, 0, 0], [2, 0, 0], { seed: 0 }), parts)
})

test('quantile interpolates between the order statistics', () => {
  assert.deepEqual(
    [0, 0.25, 0.5, 0.9, 1].map((q) => quantile([1, 2, 3, 4, 5], q)),
    [1, 2, 3, 4.6, 5],
  )
})
