// One run in a separate process, to be killed: node --import tsx resume-work.ts MODEL OUTPUT PASSES [STEPS].
// Prints "at 0" when the model is open, and "at N" after step N.
import { writeSync } from 'node:fs'
import { train } from '../../src/run/index.ts'
import { hostOf, toyRun } from '../support/runs.ts'

const [model, output, passes, steps] = process.argv.slice(2)
const config = toyRun(model!, output!, {
  batchSize: 1,
  maxSteps: Number(steps ?? 5),
  saveSteps: 1,
  saveTotalLimit: 2,
  evalRecords: 2,
  tensorboard: true,
  rl: { numGenerations: 2, maxCompletionLength: 5, numIterations: Number(passes) },
})
const host = hostOf(undefined, {
  progress: ({ kind, text, step }) => {
    if (kind === 'phase' && text?.startsWith('2')) writeSync(1, 'at 0\n')
    if (kind === 'step') writeSync(1, `at ${step}\n`)
  },
})
const { step } = await train(config, host)
process.stdout.write(`done ${step}\n`)
