import assert from 'node:assert/strict'
import test from 'node:test'
import { OptimConfig } from './config.ts'
import { learningRateAt, warmupStepsOf } from './schedule.ts'

test('beyond the end of its schedule a run continues at the last rate, and none falls below 0', () => {
  const rate = (lrSchedulerType: OptimConfig['lrSchedulerType'], step: number) =>
    learningRateAt(step, OptimConfig.parse({ learningRate: 1e-3, lrEnd: 1e-5, power: 2, lrSchedulerType }), 10)
  assert.ok(Math.abs(rate('polynomial', 10) - 1e-5) < 1e-18, `${rate('polynomial', 10)}`)
  assert.ok(Math.abs(rate('polynomial', 15) - 1e-5) < 1e-18, `${rate('polynomial', 15)}`)
  assert.equal(rate('linear', 12), 0)
  assert.equal(rate('cosine_with_restarts', 12), 0)
})

test('a warm-up below 1 is a share of the run, rounded up; from 1 on it is steps', () => {
  assert.deepEqual(
    [0, 0.1, 0.15, 0.99, 1, 7].map((warmup) => warmupStepsOf(warmup, 10)),
    [0, 1, 2, 10, 1, 7],
  )
  assert.throws(() => warmupStepsOf(1.5, 10), /warmupSteps: expected whole steps, or a share/)
})
