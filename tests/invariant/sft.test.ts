import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { evaluateModel, sft } from '../../src/run/index.ts'
import { hostOf, makeToy, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('sft')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

test('dropout takes no part in an evaluation: its figures are those of the saved weights alone', async () => {
  const config = toyRun(toy, join(folder, 'run'), {
    maxSteps: 3,
    saveSteps: 0,
    evalRecords: 4,
    optim: { learningRate: 2e-2 },
    lora: { dropout: 0.5 },
    rl: { maxCompletionLength: 8 },
  })
  const { after: trained } = await sft(config, { everything: false, maskWeight: 1, exportTo: null }, hostOf())
  const data = { ...config.data, split: 'eval' as const }
  const options = { adapter: config.output, ema: false, records: 4 }
  const alone = await evaluateModel({ ...config, data }, options, hostOf())
  assert.deepEqual(trained, alone.metrics)
})
