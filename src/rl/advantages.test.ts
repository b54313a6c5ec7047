import assert from 'node:assert/strict'
import test from 'node:test'
import { warmupStepsOf } from '../optim/schedule.ts'
import { type AdvantageOptions, groupAdvantages } from './advantages.ts'
import { GrpoConfig } from './config.ts'
import { completionMasks } from './masks.ts'

const options = (more: Partial<AdvantageOptions> = {}): AdvantageOptions => ({
  ...GrpoConfig.parse({}),
  numGenerations: 4,
  ...more,
})

test('a group whose rewards are equal gets exactly 0, whatever their binary form', () => {
  for (const r of [0.1, 0.7, 1 / 3, -1e9]) {
    const { advantages, hasSignal, metrics } = groupAdvantages([r, r, r, r], options({ advantageEps: 1e-8 }))
    assert.deepEqual([...advantages], [0, 0, 0, 0])
    assert.deepEqual(hasSignal, [false])
    assert.equal(metrics.frac_reward_zero_std, 1)
  }
})

test('a reward that could not be scored stays out of the mean, gets advantage 0 and is counted', () => {
  const with3 = groupAdvantages([1, null, 0, 0.5], options())
  assert.equal(with3.groupMean[0], 0.5)
  assert.equal(with3.advantages[1], 0)
  assert.equal(with3.unscored, 1)
  assert.equal(with3.metrics.unscored, 1)
  assert.ok(Math.abs(with3.advantages[0]! - 0.5 / 0.5001) < 1e-12)
  assert.equal(groupAdvantages([1, Number.NaN, 0, 0.5], options()).unscored, 1)
})

test('a group without a scored row has no advantage and spoils no metric', () => {
  const got = groupAdvantages([null, null, null, null, 1, 0, 1, 0], options())
  assert.deepEqual([...got.advantages.slice(0, 4)], [0, 0, 0, 0])
  assert.equal(got.metrics.reward, 0.5)
  assert.equal(got.unscored, 4)
})

test('a group with one scored row has no deviation: it is neither flat nor part of the mean of deviations', () => {
  const { groupStd, metrics } = groupAdvantages([1, null, null, 0, 1, 2], options({ numGenerations: 3 }))
  assert.ok(Number.isNaN(groupStd[0]), `${groupStd}`)
  assert.deepEqual([metrics.reward_group_std, metrics.frac_reward_zero_std], [1, 0])
})

test('two completions always give the same size of advantage', () => {
  const { advantages } = groupAdvantages([0.2, 0.9], options({ numGenerations: 2, advantageEps: 1e-12 }))
  assert.ok(Math.abs(advantages[1]! - Math.SQRT1_2) < 1e-9)
})

test('one completion per prompt, as in evaluation, gives 0', () => {
  assert.deepEqual([...groupAdvantages([0.2, 0.9], options({ numGenerations: 1 })).advantages], [0, 0])
})

test('the metrics carry the names of the rewards', () => {
  const rows = [
    [1, 0],
    [0, 0.5],
    [1, null],
    [0, 1],
  ]
  const { metrics } = groupAdvantages(rows, options({ names: ['iou', 'meteor'], weights: [1, 0.5] }))
  assert.equal(metrics['rewards/iou/mean'], 0.5)
  assert.equal(metrics['rewards/meteor/mean'], 0.5)
})

test('ragged tables, half groups, infinite rewards and wrong weights are refused', () => {
  assert.throws(() => groupAdvantages([1, 2, 3], options()), /groups of 4/)
  assert.throws(() => groupAdvantages([[1], [1, 2], [1], [1]], options()), /row 1/)
  assert.throws(() => groupAdvantages([1, Number.POSITIVE_INFINITY, 0, 0], options()), /finite/)
  assert.throws(() => groupAdvantages([1, 0, 1, 0], options({ weights: [1, 1] })), /weights/)
})

test('ragged rows end where their ids end, and a stop string is not a truncation', () => {
  const got = completionMasks([[5, 6], [5, 6, 7], [9]], {
    eos: new Set([9]),
    pad: 0,
    maskTruncated: true,
    finished: [true, false, false],
  })
  assert.deepEqual(got.lengths, [2, 3, 1])
  assert.deepEqual(got.truncated, [false, true, false])
  assert.deepEqual([...got.lossMask], [1, 1, 0, 0, 0, 0, 1, 0, 0])
  assert.equal(got.numItems, 3)
})

test('an empty completion is refused', () => {
  assert.throws(() => completionMasks([[]], { eos: new Set([9]), pad: 0, maskTruncated: false }), /at least one token/)
})

test('when every row is truncated the terminated lengths are 0', () => {
  const { metrics } = completionMasks([[1, 2]], { eos: new Set([9]), pad: 0, maskTruncated: false })
  assert.equal(metrics['completions/clipped_ratio'], 1)
  assert.equal(metrics['completions/mean_terminated_length'], 0)
})

test('a warm-up share of the run is rounded up, and half a step is refused', () => {
  assert.equal(warmupStepsOf(0.05, 50), 3)
  assert.equal(warmupStepsOf(7, 50), 7)
  assert.throws(() => warmupStepsOf(1.5, 50), /warmupSteps/)
})

test('a group of one has a deviation of 0, and an unscored group counts in no mean of deviations', () => {
  const options = { numGenerations: 1, scaleRewards: 'group', advantageEps: 1e-4, ddof: 1 } as const
  const one = groupAdvantages([3, 4], { ...options, multiObjectiveAggregation: 'sum_then_normalize' })
  assert.deepEqual([[...one.groupStd], [...one.advantages]], [[0, 0], [0, 0]]) // biome-ignore format: pairs
  const some = groupAdvantages([1, 3, null, null], {
    ...options,
    numGenerations: 2,
    multiObjectiveAggregation: 'sum_then_normalize',
  })
  assert.ok(Math.abs(some.metrics['reward_group_std']! - Math.SQRT2) < 1e-12)
})
