import assert from 'node:assert/strict'
import test from 'node:test'
import { tensor, tidy } from '../tensor/index.ts'
import { resolveGrpo } from './config.ts'
import type { Group } from './group.ts'
import { samplerDrift, samplerWeights } from './sampler.ts'

// two samples of three and two tokens, and an action after them: four columns
const [K, T] = [2, 4]
const like = (data: Float32Array) => tensor(data, [K, T])
const drawn = [Float32Array.of(-1, -2, -3), Float32Array.of(-4, -5)]
const group = {
  samples: drawn.map((logps) => ({
    ids: new Int32Array(logps.length),
    text: '',
    finished: true,
    logps,
    samplerLogps: logps,
  })),
  columns: { mask: Float32Array.of(1, 1, 1, 1, 1, 1, 0, 1), all: T, tokens: 3, sampled: null },
  old: null,
} as unknown as Group
const scored = [-1, -2, -3, -9, -4, -5, 0, -9]

test("the sampler's log-probs are compared token by token, including rows with actions after them", () => {
  tidy(() => {
    const same = samplerDrift(group, like(Float32Array.from(scored)), like)
    assert.equal(same['sampling/sampling_logp_difference/max'], 0)
    assert.equal(same['sampling/sampling_logp_difference/far_rows'], 0)
    const off = scored.map((v, i) => (i === 5 ? v + 0.5 : v)) // the second token of the second row
    const found = samplerDrift(group, like(Float32Array.from(off)), like)
    assert.equal(found['sampling/sampling_logp_difference/max'], 0.5)
    assert.ok(Math.abs(found['sampling/sampling_logp_difference/mean']! - 0.1) < 1e-6, 'over five tokens')
    assert.equal(found['sampling/sampling_logp_difference/far_rows'], 0.5)
  })
})

test('words that were not sampled are not compared: if there are no others nothing is reported', () => {
  tidy(() => {
    const samples = group.samples.map((s, k) => (k === 0 ? { ...s, sampled: false } : s))
    const off = like(Float32Array.from(scored, (v, i) => (i < T ? v + 7 : v)))
    assert.equal(samplerDrift({ ...group, samples }, off, like)['sampling/sampling_logp_difference/max'], 0)
    const greedy = group.samples.map((s) => ({ ...s, sampled: false }))
    assert.deepEqual(samplerDrift({ ...group, samples: greedy }, off, like), {})
  })
})

test('the correction is the ratio of the weights that sampled, not of those that have moved since; actions weigh 1', () => {
  const rl = resolveGrpo({ rolloutCorrection: 'token_truncate', rolloutMin: null, rolloutMax: 100, topP: 0.9 })
  tidy(() => {
    const old = Float32Array.from(scored, (v) => v + Math.log(2))
    const moved = like(Float32Array.from(scored, (v) => v + 3))
    const weights = samplerWeights(rl, { ...group, old }, moved, like)!
    const ratio = weights.isRatio!.numbers()
    ratio.forEach((w, i) => {
      const token = i % T < drawn[Math.floor(i / T)]!.length
      assert.ok(Math.abs(w - (token ? 2 : 1)) < 1e-5, `column ${i}: ${w}`)
    })
    const now = samplerWeights(rl, group, moved, like)!.isRatio!.numbers()
    assert.ok(Math.abs(now[0]! - Math.exp(3)) < 1e-3, `on policy ${now[0]}`)
  })
})

test('far_rows is the share of rows that have tokens, beyond 0.05 in either direction', () => {
  const [rows, width] = [4, 2]
  const tokens = [2, 2, 0, 1]
  const samplerLogps = tokens.map((n) => new Float32Array(n).fill(-1))
  const samples = samplerLogps.map((logps) => ({ ids: new Int32Array(logps.length), logps, samplerLogps: logps }))
  const mask = Float32Array.of(1, 1, 1, 1, 0, 0, 1, 0)
  const own = { samples, columns: { mask, all: width, tokens: width, sampled: null }, old: null } as unknown as Group
  const share = (...values: number[]) =>
    tidy(() => {
      const make = (data: Float32Array) => tensor(data, [rows, width])
      return samplerDrift(own, make(Float32Array.from(values)), make)['sampling/sampling_logp_difference/far_rows']!
    })
  assert.ok(Math.abs(share(-1, -1.06, -1.04, -0.96, 0, 0, -1, 9) - 1 / 3) < 1e-6)
  assert.ok(Math.abs(share(-0.9, -1.1, -1.04, -0.94, 0, 0, -1, 9) - 2 / 3) < 1e-6)
})
