import assert from 'node:assert/strict'
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { scratch, toyRun } from '../../tests/support/runs.ts'
import { openRunFolder } from './folder.ts'

const folder = scratch('run-folder')
after(() => rmSync(folder, { recursive: true, force: true }))

test('what a killed writer left is gone once the folder is open again, even if nothing is written any more', () => {
  const config = toyRun('none', join(folder, 'run'))
  openRunFolder(config, {}).writer.close()
  const left = join(config.output, '.tmp-checkpoint_step_3-0123abcd')
  mkdirSync(left)
  writeFileSync(join(left, 'model.safetensors'), 'half')
  openRunFolder(config, {}).writer.close()
  assert.ok(!existsSync(left))
})
