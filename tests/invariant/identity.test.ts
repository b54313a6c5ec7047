// A run resumes only if everything that decides its numbers is the same; what differs is named. Nothing broken is saved.
import assert from 'node:assert/strict'
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { newestValid } from '../../src/checkpoint/index.ts'
import { weightHashes } from '../../src/run/identity.ts'
import { type RunInput, train } from '../../src/run/index.ts'
import { hostOf, makeToy, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('identity')
const at = (name: string) => join(folder, name)
after(() => rmSync(folder, { recursive: true, force: true }))

const small = { batchSize: 1, rl: { numGenerations: 2, maxCompletionLength: 5 } }
const run = (model: string, name: string, input: Partial<RunInput>) =>
  train(toyRun(model, at(name), { ...small, ...input }), hostOf())

test('weights replaced under the same path: the run is not resumed, and the file is named', async () => {
  const toy = makeToy(at('replaced'))
  await run(toy, 'weights', { maxSteps: 1 })
  const other = makeToy(at('other'), 2)
  copyFileSync(join(other, 'model.safetensors'), join(toy, 'model.safetensors'))
  await assert.rejects(run(toy, 'weights', { maxSteps: 2 }), /weights model\.safetensors: "\d+ bytes, [0-9a-f]+", now /)
})

test('another config.json, tokenizer or preprocessor: the run is not resumed; the same values saved anew are the same', async () => {
  const toy = makeToy(at('files'))
  const edit = (name: string, change: (value: Record<string, unknown>) => unknown) => {
    const before = readFileSync(join(toy, name))
    writeFileSync(join(toy, name), JSON.stringify(change(JSON.parse(before.toString('utf8'))), null, 3))
    return () => writeFileSync(join(toy, name), before)
  }
  await run(toy, 'files-run', { maxSteps: 1 })
  const refused = (name: string) =>
    assert.rejects(
      run(toy, 'files-run', { maxSteps: 2 }),
      new RegExp(`model file ${name.replace('.', '\\.')}: ".*", now "`),
    )

  const configBack = edit('config.json', (c) => ({ ...c, llm_config: { ...(c.llm_config as object), rope_theta: 77 } }))
  await refused('config.json')
  configBack()
  const tokenizerBack = edit('tokenizer.json', (t) => ({ ...t, normalizer: { type: 'Lowercase' } }))
  await refused('tokenizer.json')
  tokenizerBack()
  writeFileSync(join(toy, 'preprocessor_config.json'), '{"image_mean": [0.1, 0.1, 0.1]}')
  await refused('preprocessor_config.json')
  rmSync(join(toy, 'preprocessor_config.json'))
  edit('config.json', (c) => ({ transformers_version: '9', ...Object.fromEntries(Object.entries(c).reverse()) }))
  assert.equal((await run(toy, 'files-run', { maxSteps: 2 })).step, 2)
})

test('a large weight file counts as changed if a tensor far from its start changed', () => {
  const size = 65 << 20 // hashed in pieces, one of each megabyte
  const header = Buffer.from(JSON.stringify({ w: { dtype: 'U8', shape: [size], data_offsets: [0, size] } }))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(header.length))
  mkdirSync(at('large'))
  const file = join(at('large'), 'model.safetensors')
  writeFileSync(file, Buffer.concat([length, header]))
  truncateSync(file, 8 + header.length + size) // holes: nothing of it is on the disk
  const before = weightHashes(at('large'))
  const fd = openSync(file, 'r+')
  writeSync(fd, Buffer.of(1), 0, 1, 40 << 20)
  closeSync(fd)
  assert.notDeepEqual(weightHashes(at('large')), before)
})

test('the same weights in another folder are the same model', async () => {
  const toy = makeToy(at('here'))
  await run(toy, 'moved', { maxSteps: 1 })
  assert.equal((await run(makeToy(at('there')), 'moved', { maxSteps: 2 })).step, 2)
})

test('another number of steps is another schedule, unless the rate is constant', async () => {
  const toy = makeToy(at('schedule'))
  const linear = { optim: { learningRate: 1e-3, lrSchedulerType: 'linear' as const } }
  await run(toy, 'linear', { ...linear, maxSteps: 2 })
  await assert.rejects(run(toy, 'linear', { ...linear, maxSteps: 8 }), /steps of the schedule: 2, now 8/)
  await run(toy, 'constant', { maxSteps: 1 })
  assert.equal((await run(toy, 'constant', { maxSteps: 2 })).step, 2)
})

test('other settings are named with both values', async () => {
  const toy = makeToy(at('settings'))
  await run(toy, 'named', { maxSteps: 1 })
  await assert.rejects(run(toy, 'named', { maxSteps: 2, loop2: { weight: 3 } }), /loop2\.weight: 1, now 3/)
})

test('weights that are not finite are never saved: the last whole checkpoint stays the newest', async () => {
  const toy = makeToy(at('finite'))
  const config = toyRun(toy, at('infinite'), { ...small, maxSteps: 3 })
  const optim = { ...config.optim, learningRate: 1e39, lrSchedulerType: 'constant' as const } // beyond what settings allow
  await assert.rejects(train({ ...config, optim }, hostOf()), /checkpoint of step 1: expected finite weights/)
  assert.ok(!existsSync(join(at('infinite'), 'checkpoint_step_1')))
  assert.equal(newestValid(at('infinite')).checkpoint?.step, 0)
})
