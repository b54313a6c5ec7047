import assert from 'node:assert/strict'
import test from 'node:test'
import { OptimConfig } from './config.ts'
import { learningRateAt } from './schedule.ts'

test('beyond the end of its schedule a run goes on at the last rate, and none falls below 0', () => {
  const rate = (lrSchedulerType: OptimConfig['lrSchedulerType'], step: number) =>
    learningRateAt(step, OptimConfig.parse({ learningRate: 1e-3, lrEnd: 1e-5, power: 2, lrSchedulerType }), 10)
  assert.ok(Math.abs(rate('polynomial', 10) - 1e-5) < 1e-18, `${rate('polynomial', 10)}`)
  assert.ok(Math.abs(rate('polynomial', 15) - 1e-5) < 1e-18, `${rate('polynomial', 15)}`)
  assert.equal(rate('linear', 12), 0)
  assert.equal(rate('cosine_with_restarts', 12), 0)
})
