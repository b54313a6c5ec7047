import assert from 'node:assert/strict'
import test from 'node:test'
import { SettingTable, setAt } from '../config/index.ts'
import { RunConfig, type RunInput, resolveRun } from './config.ts'
import { maxima } from './limits.ts'

const numeric = new SettingTable(RunConfig).settings.filter(({ type }) => /number|whole|integer/.test(type))

function rejected(path: string, value: number): boolean {
  const input: Record<string, unknown> = path.startsWith('points.') ? { task: 'points' } : {}
  setAt(input, path, value)
  try {
    resolveRun(input as RunInput)
    return false
  } catch {
    return true
  }
}

/** Steps, words, milliseconds, failures, records of a stream, seeds: a large one takes no memory. */
const noMemory = new Set([
  'seed',
  'data.seed',
  'data.frame',
  'maxSteps',
  'evalSteps',
  'evalRecords',
  'saveSteps',
  'logSteps',
  'rl.topK',
  'rl.refModelSyncSteps',
  'optim.warmupSteps',
  'optim.numCycles',
  'rewards.length.min',
  'rewards.length.max',
  'rewards.judge.timeoutMs',
  'rewards.judge.breakerFailures',
  'rewards.judge.maxCaptionWords',
  'rewards.judge.seed',
])

test('every whole number that takes memory is rejected at 20 million, and every number at 1e300', () => {
  assert.ok(numeric.length > 80, String(numeric.length))
  const whole = numeric.filter(({ type }) => type.includes('whole')).map(({ path }) => path)
  const accepted = whole.filter((path) => !rejected(path, 2e7))
  assert.deepEqual(
    accepted.filter((path) => !noMemory.has(path)),
    [],
  )
  for (const { path } of numeric) assert.ok(rejected(path, 1e300), path)
})

test('a maximum is accepted, one more is not, and the message names the setting and the maximum', () => {
  const alone = { batchSize: 1, 'rl.numGenerations': 2 } as const
  for (const [path, max] of Object.entries(maxima)) {
    assert.ok(
      numeric.some((setting) => setting.path === path),
      `${path} is a setting`,
    )
    const input: Record<string, unknown> = {}
    for (const [other, value] of Object.entries(alone)) setAt(input, other, value)
    setAt(input, path, max + 1)
    assert.throws(
      () => resolveRun(input as RunInput),
      (error: Error) =>
        error.message.startsWith(`settings: ${path}: expected at most ${max.toLocaleString('en')}, got`),
      path,
    )
  }
  assert.equal(resolveRun({ batchSize: 1, rl: { numGenerations: 1024 } }).rl.numGenerations, 1024)
})

test('batch and group together are limited, too', () => {
  assert.throws(
    () => resolveRun({ batchSize: 1024, rl: { numGenerations: 512 } }),
    /batchSize x rl\.numGenerations: expected at most 65,536, got 524288/,
  )
})

test('a seed may be any whole number', () => {
  assert.equal(resolveRun({ seed: Number.MAX_SAFE_INTEGER }).seed, Number.MAX_SAFE_INTEGER)
})
