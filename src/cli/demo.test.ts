import assert from 'node:assert/strict'
import test from 'node:test'
import { comparison, readDemo, verdict } from './demo.ts'

const of = (low: number, mean: number, high: number) => ({ low, mean, high })

test('intervals are apart only when they share no value', () => {
  assert.equal(verdict(of(0.1, 0.2, 0.3), of(0.31, 0.4, 0.5)), 'higher')
  assert.equal(verdict(of(0.31, 0.4, 0.5), of(0.1, 0.2, 0.3)), 'lower')
  assert.equal(verdict(of(0.1, 0.2, 0.3), of(0.3, 0.4, 0.5)), 'no')
})

test('the table has a row per metric with the change and its sign', () => {
  const rows = comparison(
    { a: of(0.1, 0.2, 0.3), b: of(0, 0.5, 1) },
    { a: of(0.4, 0.5, 0.6), b: of(0, 0.25, 1) },
  ).split('\n')
  assert.match(rows[1]!, /^a +0\.2000 \[0\.1000, 0\.3000\] +0\.5000 \[0\.4000, 0\.6000\] +\+0\.3000 +higher$/)
  assert.match(rows[2]!, /-0\.2500 +no$/)
})

test('the run folder follows the seed unless one is named', () => {
  assert.equal(readDemo([]).config.output, 'runs/demo-seed-42')
  assert.equal(readDemo(['--seed', '7']).config.output, 'runs/demo-seed-7')
  const named = readDemo(['--output', 'elsewhere'])
  assert.deepEqual([named.config.output, named.freshName], ['elsewhere', false])
})

test('flags win over the recipe, and another mask action trains the groups it reaches', () => {
  const given = readDemo([
    '--loop2.action',
    'field',
    '--maxSteps',
    '3',
    '--rl.learningRate',
    '0',
    '--shuffleRewards',
    'true',
  ])
  assert.deepEqual([given.config.maxSteps, given.config.optim.learningRate, given.config.shuffleRewards], [3, 0, true])
  assert.equal(given.config.train.length, 5)
  assert.deepEqual(readDemo(['--loop2.action', 'embedding']).config.train, ['mlp1', 'lora', 'text_hidden_fcs'])
  assert.equal(readDemo(['--loop2.action', 'embedding', '--loop2.maskLoss', '0.1']).config.train.length, 5)
  assert.deepEqual(readDemo(['--loop2.action', 'embedding', '--train', 'lora']).config.train, ['lora'])
})

test('an evaluation of fewer than two records is refused', () => {
  assert.throws(() => readDemo(['--evalRecords', '0']), /evalRecords: expected at least 2/)
})
