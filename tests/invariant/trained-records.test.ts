// An evaluation of a run's weights takes the run's data and held-out part, and counts records that were trained on.
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { writeGarArrow } from '../../src/data/arrow/write.ts'
import { evaluateModel, overStored, resolveRun, settingsToEvaluate, train } from '../../src/run/index.ts'
import { garRow, rowsOf } from '../support/data.ts'
import { hostOf, makeToy, scratch, toyRun } from '../support/runs.ts'

const folder = scratch('trained')
const toy = makeToy(join(folder, 'toy'))
const output = join(folder, 'run')
const photos = join(folder, 'one/photos')
after(() => rmSync(folder, { recursive: true, force: true }))

async function evaluated(own: { dataPath?: string; data?: object }) {
  const stored = settingsToEvaluate(output, own.dataPath !== undefined)
  const config = resolveRun(overStored(stored, { device: 'cpu', threads: 1, ...own }))
  return evaluateModel(config, { adapter: output, ema: false, records: null, run: output }, hostOf())
}

test('a run that held out 4 of 40 records is evaluated on these 4, also under another name and in other shards', async () => {
  const rows = await Promise.all(Array.from({ length: 40 }, (_, i) => garRow(i)))
  await writeGarArrow(photos, rowsOf(rows), {})
  const given = { dataPath: photos, evalRecords: 4, maxSteps: 1, data: { workers: 0, evalFraction: 0.01 } }
  const { evaluated: seen } = await train(toyRun(toy, output, { ...given, rl: { numGenerations: 2 } }), hostOf())
  assert.equal(seen, 4)

  const here = await evaluated({})
  assert.deepEqual([here.records, here.trainedOn], [4, 0])
  const copy = join(folder, 'two/photos-v2')
  mkdirSync(join(folder, 'two'))
  await writeGarArrow(copy, rowsOf(rows), { shardBytes: 2000 })
  const moved = await evaluated({ dataPath: copy, data: { split: 'eval' } })
  assert.deepEqual([moved.trainedOn, moved.records, moved.metrics], [0, here.records, here.metrics])

  const all = await evaluated({ dataPath: copy })
  assert.deepEqual([all.records, all.trainedOn], [40, 40 - here.records])
  const half = await evaluated({ data: { evalFraction: 0.6 } })
  assert.equal(half.trainedOn, half.records - here.records)
  const others = join(folder, 'others')
  await writeGarArrow(others, rowsOf(await Promise.all([90, 91, 92].map((i) => garRow(i)))), {})
  assert.equal((await evaluated({ dataPath: others })).trainedOn, 0)
})

test('without the data of the run it is not known which records were trained on', async () => {
  cpSync(photos, join(folder, 'kept'), { recursive: true })
  rmSync(photos, { recursive: true })
  assert.equal((await evaluated({ dataPath: join(folder, 'kept') })).trainedOn, null)
})
