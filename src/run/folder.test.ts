import assert from 'node:assert/strict'
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
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

test('what a killed writer left is gone once the folder is open again, even if nothing is written any more', () => {
  const config = toyRun('none', join(folder, 'run'))
  close(openRunFolder(config, {}))
  const left = join(config.output, '.tmp-checkpoint_step_3-0123abcd')
  mkdirSync(left)
  writeFileSync(join(left, 'model.safetensors'), 'half')
  close(openRunFolder(config, {}))
  assert.ok(!existsSync(left))
})

test('checkpoints without their log are refused, and nothing is written', () => {
  const config = toyRun('none', join(folder, 'lost'))
  mkdirSync(join(config.output, 'checkpoint_step_6'), { recursive: true })
  assert.throws(() => openRunFolder(config, {}), /events\.jsonl: expected the log.*checkpoint_step_6/)
  assert.ok(!existsSync(join(config.output, 'events.jsonl')) && !existsSync(join(config.output, 'run.lock')))
})

test('a folder that cannot be written is refused in words', () => {
  const config = toyRun('none', join(folder, 'file', 'run'))
  writeFileSync(join(folder, 'file'), '')
  assert.throws(() => openRunFolder(config, {}), /output: expected a folder to write to/)
})
