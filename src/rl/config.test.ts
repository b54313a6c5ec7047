import assert from 'node:assert/strict'
import test from 'node:test'
import { OptimConfig } from '../optim/index.ts'
import { GrpoConfig, type GrpoInput, grpoPresetNames, grpoWarnings, resolveGrpo } from './config.ts'
import { adaptEntropy, currentEntropyCoef, initialEntropyState } from './entropy.ts'
import { needsOldLogps } from './plan.ts'

test('every preset resolves, and given values win over it', () => {
  for (const preset of grpoPresetNames) assert.equal(resolveGrpo({ preset }).preset, preset)
  assert.equal(resolveGrpo({ preset: 'trl' }).lossType, 'dapo')
  assert.equal(resolveGrpo({ preset: 'trl', beta: 0.1, lossType: undefined }).beta, 0.1)
  assert.equal(resolveGrpo({ preset: 'trl', beta: 0.1, lossType: undefined }).lossType, 'dapo')
  assert.equal(resolveGrpo({ preset: 'gspo' }).importanceSamplingLevel, 'sequence')
  assert.deepEqual(
    [resolveGrpo({ preset: 'dapo' }).epsilonHigh, resolveGrpo({ preset: 'dapo' }).groupFilter],
    [0.28, true],
  )
})

test('every setting is described', () => {
  for (const schema of [GrpoConfig, OptimConfig])
    for (const [name, field] of Object.entries(schema.shape)) assert.ok(field.description, name)
})

test('an unknown setting is refused', () => {
  assert.throws(() => resolveGrpo({ klCoef: 1 } as GrpoInput), /klCoef/)
})

const refused: [string, GrpoInput, RegExp][] = [
  ['a cispo cap below 1', { lossType: 'cispo' }, /epsilonHigh.*at least 1/],
  ['a delta inside the clip', { delta: 1.1 }, /delta.*above 1 \+ epsilonHigh/],
  ['a delta without clipping', { lossType: 'sapo', delta: 3 }, /delta/],
  ['luspo at token level', { lossType: 'luspo', beta: 0 }, /sequence for luspo/],
  ['luspo with a KL term', { lossType: 'luspo', importanceSamplingLevel: 'sequence' }, /beta.*0 for luspo/],
  ['gmpo at sequence level', { lossType: 'gmpo', importanceSamplingLevel: 'sequence' }, /gmpo/],
  ['gmpo with an entropy filter', { lossType: 'gmpo', topEntropyQuantile: 0.5 }, /topEntropyQuantile/],
  [
    'luspo with an entropy filter',
    { lossType: 'luspo', importanceSamplingLevel: 'sequence', beta: 0, topEntropyQuantile: 0.5 },
    /topEntropyQuantile.*luspo/,
  ],
  ['a reference that moves without a KL term', { beta: 0, syncRefModel: true }, /syncRefModel/],
  ['a corrected KL without a KL term', { beta: 0, useBiasCorrectionKl: true }, /useBiasCorrectionKl/],
  [
    'generation and accumulation that do not divide',
    { gradientAccumulationSteps: 4, stepsPerGeneration: 3 },
    /stepsPerGeneration/,
  ],
  ['an upper rollout bound below the lower', { rolloutMin: 4 }, /rolloutMin/],
  ['a lower clip of nothing', { epsilon: 1 }, /epsilon/],
]
for (const [what, given, reason] of refused) {
  test(`${what} is refused with the reason`, () => {
    assert.throws(() => resolveGrpo(given), reason)
  })
}

test('one completion per prompt is refused', () => {
  assert.throws(() => GrpoConfig.parse({ numGenerations: 1 }))
})

test('a truncating sampler is warned about', () => {
  assert.match(grpoWarnings(resolveGrpo({ topK: 50 })).join(), /sampler is not the policy/)
  assert.match(grpoWarnings(resolveGrpo({ lossType: 'bnpo', importanceSamplingLevel: 'sequence' })).join(), /length/)
})

test('the adaptive entropy bonus acts from the second step, grows below the target and shrinks above it', () => {
  const config = resolveGrpo({
    useAdaptiveEntropy: true,
    entropyTarget: 0.2,
    entropyCoefDelta: 0.01,
    entropyCoefMax: 0.015,
  })
  let state = initialEntropyState(config)
  assert.equal(currentEntropyCoef(state, config), 0)
  state = adaptEntropy(state, 0.1, config)
  assert.equal(currentEntropyCoef(state, config), 0.01)
  state = adaptEntropy(state, 0.1, config)
  assert.equal(currentEntropyCoef(state, config), 0.015)
  state = adaptEntropy(state, 0.3, config)
  assert.equal(currentEntropyCoef(state, config), 0)
  assert.ok(Math.abs(state.coef - 0.005) < 1e-12)
  assert.equal(currentEntropyCoef({ coef: 0.01, last: null }, config), 0, 'a coefficient of the settings waits too')
})

test('the entropy coefficient ends at its minimum and at its maximum', () => {
  const config = resolveGrpo({
    useAdaptiveEntropy: true,
    entropyTarget: 0.25,
    entropyCoefDelta: 0.01,
    entropyCoefMin: 0.004,
    entropyCoefMax: 0.015,
  })
  const after = (coef: number, entropy: number) => adaptEntropy({ coef, last: null }, entropy, config).coef
  assert.deepEqual([after(0.012, 0.3), after(0.004, 0.3)], [0.004, 0.004])
  assert.deepEqual([after(0.012, 0.1), after(0.015, 0.1)], [0.015, 0.015])
})

test('the preset of TRL corrects the KL term as soon as there is one, and every value can be overridden', () => {
  assert.equal(resolveGrpo({ preset: 'trl' }).useBiasCorrectionKl, false, 'there is no KL term with beta 0')
  assert.equal(resolveGrpo({ preset: 'trl', beta: 0.1 }).useBiasCorrectionKl, true)
  assert.equal(resolveGrpo({ preset: 'trl', beta: 0.1, useBiasCorrectionKl: false }).useBiasCorrectionKl, false)
  assert.equal(resolveGrpo({ beta: 0.1 }).useBiasCorrectionKl, false)
  assert.equal(resolveGrpo({ preset: 'trl' }, { otherBeta: true }).useBiasCorrectionKl, true, 'a task has its own beta')
  assert.throws(() => resolveGrpo({ preset: 'trl', useBiasCorrectionKl: true }), /useBiasCorrectionKl/)
})

test('an entropy exactly at the target counts as low', () => {
  const config = resolveGrpo({ useAdaptiveEntropy: true, entropyTarget: 0.25, entropyCoefDelta: 0.01 })
  const state = adaptEntropy(initialEntropyState(config), 0.25, config)
  assert.deepEqual(state, { coef: 0.01, last: 0.25 })
  assert.equal(currentEntropyCoef(state, config), 0.01)
})

test('old log-probs are needed if a generation batch or a pass over it lasts longer than one step', () => {
  const needed = (gradientAccumulationSteps: number, stepsPerGeneration: number, numIterations: number) =>
    needsOldLogps({ gradientAccumulationSteps, stepsPerGeneration, numIterations })
  assert.deepEqual([needed(2, 2, 1), needed(4, 2, 2), needed(4, 2, 1)], [false, false, false])
  assert.deepEqual([needed(2, 2, 2), needed(1, 2, 1), needed(4, 2, 4)], [true, true, true])
})

test('a generation may feed a part of a step or several steps, in whole numbers', () => {
  const of = (gradientAccumulationSteps: number, stepsPerGeneration: number) =>
    resolveGrpo({ lossType: 'grpo', gradientAccumulationSteps, stepsPerGeneration })
  assert.equal(of(4, 2).stepsPerGeneration, 2)
  assert.equal(of(2, 4).stepsPerGeneration, 4)
  for (const [accumulated, perGeneration] of [
    [4, 3],
    [3, 4],
  ] as const)
    assert.throws(() => of(accumulated, perGeneration), /stepsPerGeneration: expected a multiple or a divisor/)
})
