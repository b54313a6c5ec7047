import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { writeCheckpoint } from '../checkpoint/index.ts'
import { failing } from './hosted.ts'

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'hosted-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const failed = async () => {
  throw new Error('what went wrong')
}

test('an error is reported unchanged, also if the output is not a folder or does not exist', async (t) => {
  const folder = scratch(t)
  writeFileSync(join(folder, 'file'), '')
  for (const output of ['file', join('file', 'inside'), 'nothing'])
    await assert.rejects(failing(join(folder, output), failed), /^Error: what went wrong$/)
})

test('the last checkpoint that is whole is named before the error', async (t) => {
  const folder = scratch(t)
  for (const step of [1, 2]) writeCheckpoint(folder, step, { 'state.json': '{}' })
  writeFileSync(join(folder, 'checkpoint_step_2', 'state.json'), '{ }')
  const written = t.mock.method(process.stderr, 'write', () => true)
  await assert.rejects(failing(folder, failed), /what went wrong/)
  const said = written.mock.calls.map(({ arguments: [text] }) => String(text)).join('')
  assert.match(said, /last good checkpoint: .*checkpoint_step_1/)
})
