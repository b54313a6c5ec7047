import assert from 'node:assert/strict'
import test from 'node:test'
import { groupAdvantages } from './advantages.ts'
import { decodedTokens, type Group, type Scored } from './group.ts'
import { StepReport } from './step-report.ts'
import type { Task } from './task.ts'

const task = { name: 'loop1' } as Task

function group(totals: readonly (number | null)[], texts: readonly string[], more: Partial<Group> = {}): Group {
  const samples = texts.map((text) => ({
    ids: Int32Array.of(5, 6),
    text,
    finished: true,
    logps: new Float32Array(2),
  }))
  const scores = totals.map((total): Scored => ({ total, parts: { made: total }, counted: [] }))
  const columns = { mask: new Float32Array(0), all: 2, tokens: 2, sampled: null }
  const plain = { advantages: new Float64Array(0), hasSignal: true, old: null, reference: null, replies: [] }
  return { task, item: { id: 'x' }, samples, scores, columns, ...plain, ...more }
}

/** Two groups of three samples; the second has one that could not be scored, and texts that repeat. */
function reported(): Record<string, number> {
  const report = new StepReport()
  report.weigh('loop1', 0.5)
  report.learned(
    group([0, 1, 2], ['a', 'b', 'c']),
    1,
    { kl: 0.1, policy_loss: 3, entropy_sum: 4, entropy_tokens: 2 },
    0.2,
  )
  const second = group([4, null, 4], ['a', 'a', 'a'], { hasSignal: false })
  report.learned(second, 2, { kl: 0.3, policy_loss: 5, entropy_sum: 2, entropy_tokens: 1 }, 0.6)
  assert.equal(report.entropy, 2)
  assert.equal(report.flat('loop1'), false)
  return report.metrics(1e-3)
}

test('metrics of a step cover all of its groups: means, sample deviations; unscored samples are left out and counted', () => {
  const m = reported()
  const near = (name: string, value: number) =>
    assert.ok(Math.abs(m[name]! - value) < 1e-12, `${name}: ${m[name]}, not ${value}`)
  near('loop1/loss', 3)
  near('total_loss', 1.5)
  near('learning_rate', 1e-3)
  near('loop1/kl', 0.2)
  near('loop1/kl_div', 0.2)
  near('loop1/policy_loss', 4)
  near('loop1/mask_loss', 0.4)
  const totals = [0, 1, 2, 4, 4]
  const mean = 11 / 5
  near('loop1/reward_mean', mean)
  near('loop1/reward_std', Math.sqrt(totals.reduce((sum, v) => sum + (v - mean) ** 2, 0) / 4))
  near('loop1/reward_group_std', 0.5)
  near('loop1/rewards/made/mean', mean)
  near('loop1/frac_reward_zero_std', 0.5)
  near('loop1/unscored', 1)
  near('loop1/completions/unique', (1 + 1 / 3) / 2)
  near('loop1/completions/mean_length', 2)
  assert.ok(!('loop1/entropy_sum' in m), 'sums that only steer are not logged')
})

test('a maximum over groups is the largest of theirs, a minimum the least, and only then', () => {
  const report = new StepReport()
  const lossMetrics = (max: number, min: number) => ({
    'sampling/sampling_logp_difference/max': max,
    'sampling/sampling_logp_difference/mean': max,
    'sampling/importance_sampling_ratio/min': min,
    'clip_ratio/low_min': min,
    'clip_ratio/high_max': max,
  })
  report.learned(group([0], ['a']), 1, lossMetrics(0.5, 0.75), null)
  report.learned(group([0], ['a']), 1, lossMetrics(0.25, 0.25), null)
  const m = report.metrics(1e-3)
  assert.equal(m['loop1/sampling/sampling_logp_difference/max'], 0.5)
  assert.equal(m['loop1/sampling/sampling_logp_difference/mean'], 0.375)
  assert.equal(m['loop1/sampling/importance_sampling_ratio/min'], 0.25)
  assert.equal(m['loop1/clip_ratio/low_min'], 0.25)
  assert.equal(m['loop1/clip_ratio/high_max'], 0.5)
})

test('logged reward metrics are those that verify proves, whatever could not be scored and with either ddof', () => {
  const groups = [
    [0.25, 1, 2],
    [4, null, 4],
    [null, 3, null],
    [null, null, null],
  ]
  for (const ddof of [0, 1] as const) {
    const report = new StepReport()
    report.ddof = ddof
    for (const totals of groups) report.learned(group(totals, ['a', 'b', 'c']), 0, {}, null)
    const logged = report.metrics(0)
    const options = { numGenerations: 3, ddof, scaleRewards: 'group', advantageEps: 1e-4 } as const
    const { metrics } = groupAdvantages(
      groups.flat().map((total) => [total]),
      { ...options, multiObjectiveAggregation: 'sum_then_normalize', names: ['made'] },
    )
    assert.deepEqual([metrics.frac_reward_zero_std, metrics.unscored], [ddof === 1 ? 0.25 : 0.5, 6], 'one scored row')
    for (const [name, value] of Object.entries(metrics)) assert.equal(logged[`loop1/${name}`], value, name)
  }
})

test('tokens of an answer that was decoded once for all rows of its group count once', () => {
  const one = group([0, 1, 2], ['a', 'b', 'c'])
  assert.equal(decodedTokens(one), 6)
  assert.equal(decodedTokens({ samples: one.samples.map((s) => ({ ...s, sampled: false })) }), 2)
})
