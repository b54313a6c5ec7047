// One run in a process of its own, to be killed: node --import tsx resume-work.ts MODEL OUTPUT PASSES [STEPS]. Says "open" when the model is.
import { hostOf, toyRun } from '../../src/rl/testing.ts'
import { train } from '../../src/rl/trainer.ts'

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
  progress: ({ kind, text }) => {
    if (kind === 'phase' && text?.startsWith('2')) process.stdout.write('open\n')
  },
})
const { step } = await train(config, host)
process.stdout.write(`done ${step}\n`)
