// Everything a checkpoint keeps is needed: a run with every adaptive switch on, stopped between two passes, resumes bit for bit.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { type RunInput, train } from '../../src/run/index.ts'
import { hostOf, makeToy, runBytes, type Scores, scratch, spread, stoppingAfter, toyRun } from '../support/runs.ts'

const folder = scratch('resume-state')
const toy = makeToy(join(folder, 'toy'))
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

async function stoppedAndWhole(name: string, stopAt: number, input: Partial<RunInput>, scores: Scores = spread) {
  const config = (output: string) => toyRun(toy, at(output), { saveTotalLimit: 9, batchSize: 1, ...input })
  await train(config(`${name}-whole`), hostOf(scores))
  const halfway = stoppingAfter(stopAt, scores)
  assert.equal((await train(config(`${name}-split`), halfway)).step, stopAt)
  await train(config(`${name}-split`), hostOf(scores))
  const [whole, split] = [runBytes(at(`${name}-whole`)), runBytes(at(`${name}-split`))]
  assert.ok(whole.size > 10)
  assert.deepEqual(split, whole)
}

const adaptive: Partial<RunInput> = {
  maxSteps: 6,
  saveSteps: 1,
  adaptiveLoops: true,
  optim: { learningRate: 5e-3, emaDecay: 0.9 },
  rl: {
    numGenerations: 2,
    maxCompletionLength: 6,
    numIterations: 2,
    beta: 0.1,
    syncRefModel: true,
    refModelSyncSteps: 3, // it moves between the two passes over a group
    useAdaptiveEntropy: true,
    entropyTarget: 100,
    entropyCoefDelta: 0.01,
  },
}

test('stopped between two passes: weights of the loops, entropy, reference, groups and their densities come back', () =>
  stoppedAndWhole('passes', 3, adaptive))

test('stopped inside a generation batch of several steps: the rest of its pieces is learned', () =>
  stoppedAndWhole('pieces', 3, { ...adaptive, rl: { ...adaptive.rl, stepsPerGeneration: 2, numIterations: 1 } }))

test('a count that speaks after three steps is kept over a stop after two', () =>
  stoppedAndWhole('flat', 2, { maxSteps: 4, saveSteps: 1, checkGroups: false }, () => 0.5))
