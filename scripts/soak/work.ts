// One life of a run, to be killed: node --import tsx work.ts KIND MODEL OUTPUT STEPS SAVE_STEPS. Says where it is and what it holds after each step.
import { readdirSync, writeSync } from 'node:fs'
import { sft, train } from '../../src/run/index.ts'
import { memory } from '../../src/tensor/index.ts'
import { hostOf, toyRun } from '../../tests/support/runs.ts'

const [kind, model, output, steps, saveSteps] = process.argv.slice(2)
const config = toyRun(model!, output!, {
  batchSize: 1,
  maxSteps: Number(steps),
  saveSteps: Number(saveSteps),
  saveTotalLimit: 2,
  evalRecords: 2,
  evalSteps: 50,
  samplesMiB: 1,
  rl: { numGenerations: 2, maxCompletionLength: 3 },
})
const host = hostOf(undefined, {
  progress: (event) => {
    if (event.kind !== 'step') return
    const held = {
      rss: process.memoryUsage.rss(),
      tensors: memory().tensors,
      handles: readdirSync('/proc/self/fd').length,
    }
    writeSync(1, `${JSON.stringify({ step: event.step, ...held })}\n`)
  },
})
if (kind === 'sft') await sft(config, { everything: false, maskWeight: 1, exportTo: null }, host)
else await train(config, host)
