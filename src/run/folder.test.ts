import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { scratch, toyRun } from '../../tests/support/runs.ts'
import { openRunFolder } from './folder.ts'

function close({ lock, writer }: ReturnType<typeof openRunFolder>): void {
  writer.close()
  lock.release()
}

const folder = scratch('run-folder')
after(() => rmSync(folder, { recursive: true, force: true }))

test('what a killed writer left is removed when the folder is opened again, even if nothing is written any more', () => {
  const config = toyRun('none', join(folder, 'run'))
  close(openRunFolder(config, {}))
  const left = join(config.output, '.tmp-checkpoint_step_3-0123abcd')
  mkdirSync(left)
  writeFileSync(join(left, 'model.safetensors'), 'half')
  close(openRunFolder(config, {}))
  assert.ok(!existsSync(left))
})

test("the folder has the settings of the run's own task, and of no other", () => {
  for (const [task, own, other] of [
    ['points', ['points'], ['loop1', 'loop2']],
    ['cycle', ['loop1', 'loop2'], ['points']],
    ['./mine.ts', ['loop1', 'loop2', 'points'], []],
  ] as const) {
    const config = { ...toyRun('none', join(folder, `of-${task.replace('./', '')}`)), task }
    const noTerms = { terms: [], shaping: 'none' as const }
    const rewards = { ...config.rewards, loop1: noTerms, points: noTerms }
    close(openRunFolder({ ...config, rewards }, {}))
    const stored = JSON.parse(readFileSync(join(config.output, 'config.json'), 'utf8'))
    for (const name of own) assert.ok(name in stored, `${task} has ${name}`)
    for (const name of other) assert.ok(!(name in stored), `${task} has no ${name}`)
    assert.equal('preset' in stored.rewards && 'loop1' in stored.rewards, task !== 'points', task)
    assert.equal('points' in stored.rewards, task !== 'cycle', task)
    assert.ok('rl' in stored && 'iou' in stored.rewards, 'what every task has stays')
  }
})

test('the folder has no setting that its task does not use', () => {
  const config = { ...toyRun('none', join(folder, 'of-segment')), task: 'segment' }
  close(openRunFolder(config, {}))
  const stored = JSON.parse(readFileSync(join(config.output, 'config.json'), 'utf8'))
  assert.ok(!('lora' in stored || 'temperature' in stored.rl || 'judge' in stored.rewards), 'a segmenter has none')
  assert.deepEqual(
    [stored.rl.numGenerations, Object.keys(stored.lrScale)],
    [config.rl.numGenerations, ['mask_decoder']],
  )
})

test('checkpoints without their log are refused, and nothing is written', () => {
  const config = toyRun('none', join(folder, 'lost'))
  mkdirSync(join(config.output, 'checkpoint_step_6'), { recursive: true })
  assert.throws(() => openRunFolder(config, {}), /events\.jsonl: expected the log.*checkpoint_step_6/)
  assert.ok(!existsSync(join(config.output, 'events.jsonl')) && !existsSync(join(config.output, 'run.lock')))
})

test('a folder that cannot be written is refused with a clear message', () => {
  const config = toyRun('none', join(folder, 'file', 'run'))
  writeFileSync(join(folder, 'file'), '')
  assert.throws(() => openRunFolder(config, {}), /output: expected a folder to write to/)
})

test('a folder that belongs to a model or to the records is refused, and nothing is written', () => {
  const model = join(folder, 'model')
  mkdirSync(model)
  writeFileSync(join(model, 'config.json'), '{"model_type":"sa2va_chat"}')
  assert.throws(
    () => openRunFolder(toyRun('none', model), {}),
    /output: .* got one with the config\.json of something else/,
  )
  const records = join(folder, 'records')
  mkdirSync(records)
  const among = toyRun('none', join(folder, 'model', '..', 'records'), { dataPath: records })
  assert.throws(() => openRunFolder(among, {}), /output: .* got the folder of the records/)
  const held = toyRun('none', records, { evalPath: records })
  assert.throws(() => openRunFolder(held, {}), /output: .* got the folder of the records/)
  assert.deepEqual([readdirSync(model), readdirSync(records)], [['config.json'], []])
})

test('devices, pipes and folders under the names of a run are refused with a clear message', () => {
  for (const [name, kind] of [
    ['events.jsonl', 'a device'],
    ['run.lock', 'a device'],
    ['config.json', 'a folder'],
  ] as const) {
    const output = join(folder, `odd-${name}`)
    mkdirSync(output)
    if (kind === 'a folder') mkdirSync(join(output, name))
    else symlinkSync('/dev/zero', join(output, name))
    assert.throws(
      () => openRunFolder(toyRun('none', output), {}),
      new RegExp(`${name}: expected a regular file, got ${kind}`),
    )
    assert.deepEqual(readdirSync(output), [name])
  }
})

test('a run that was killed before its first line begins again', () => {
  const config = toyRun('none', join(folder, 'early'))
  mkdirSync(config.output)
  writeFileSync(join(config.output, 'config.json'), JSON.stringify(config))
  const opened = openRunFolder(config, {})
  assert.equal(opened.resumed, null, 'it starts at step 0')
  opened.writer.step(1, { loss: 2 }, { step_time: 1 })
  close(opened)
  assert.match(readFileSync(join(config.output, 'events.jsonl'), 'utf8'), /"loss":2/)
  assert.equal(JSON.parse(readFileSync(join(config.output, 'config.json'), 'utf8')).output, config.output)
})
