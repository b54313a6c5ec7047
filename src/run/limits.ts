// Maximum of every count that decides the memory or the length of a step. Typing errors and wrong units are rejected before anything
// is opened. Limits of a task's settings are in the task's schema.
import { Mismatch } from '../core/index.ts'
import type { RunConfig } from './config.ts'

export const maxima: Readonly<Record<string, number>> = {
  batchSize: 4096,
  evalBatch: 4096,
  maxTiles: 1024,
  saveTotalLimit: 100_000,
  'rl.numGenerations': 1024,
  'rl.maxCompletionLength': 131_072,
  'rl.gradientAccumulationSteps': 65_536,
  'rl.stepsPerGeneration': 65_536,
  'rl.numIterations': 1024,
  'rl.maxResampleTimes': 1024,
  'lora.rank': 65_536,
  'data.prefetch': 65_536,
  'data.curriculumBuckets': 65_536,
  'rewards.iou.resolution': 65_536,
  'rewards.judge.maxCaptionWords': 1_000_000,
}
/** Completions of a micro-batch. */
const maxCompletions = 65_536
/** Of any other number: weights, rates, seconds, steps. */
const largest = 1e9
const unlimited: ReadonlySet<string> = new Set(['seed', 'data.seed', 'rewards.judge.seed'])

/** Rejects numbers that cannot be meant. */
export function checkLimits(config: RunConfig): void {
  for (const [path, value] of numbersOf(config)) {
    const max = maxima[path] ?? largest
    if (Math.abs(value) > max && !unlimited.has(path)) reject(path, max, value)
  }
  const { batchSize, rl } = config
  const completions = batchSize * rl.numGenerations
  if (completions > maxCompletions) reject('batchSize x rl.numGenerations', maxCompletions, completions)
}

function reject(field: string, max: number, got: number): never {
  throw new Mismatch({ where: 'settings', field, expected: `at most ${max.toLocaleString('en')}`, got })
}

/** Numbers at any depth; those of a list have the path of the list. */
function* numbersOf(value: unknown, path = ''): Generator<[string, number]> {
  if (typeof value === 'number') yield [path, value]
  if (typeof value !== 'object' || value === null) return
  for (const [key, inner] of Object.entries(value)) {
    const below = path === '' ? key : `${path}.${key}`
    yield* numbersOf(inner, Array.isArray(value) ? path : below)
  }
}
