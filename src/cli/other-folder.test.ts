// A run that was started with relative paths is used from another working folder.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'

const root = join(import.meta.dirname, '../..')
const scratch = mkdtempSync(join(tmpdir(), 'other folder é '))
const [here, elsewhere] = [join(scratch, 'here'), join(scratch, 'else where')]
for (const folder of [here, elsewhere]) mkdirSync(folder)
after(() => rmSync(scratch, { recursive: true, force: true }))

function roundtrip(cwd: string, ...args: string[]): string {
  const done = spawnSync(process.execPath, [join(root, 'bin/roundtrip.mjs'), ...args], { cwd, encoding: 'utf8' })
  assert.equal(done.status, 0, done.stderr)
  return done.stdout
}

const settingsOf = (run: string) =>
  JSON.parse(readFileSync(join(run, 'config.json'), 'utf8')) as Record<string, unknown>
const short = [
  '--maxSteps',
  '1',
  '--batchSize',
  '1',
  '--rl.numGenerations',
  '2',
  '--evalRecords',
  '2',
  '--threads',
  '1',
]
const start = ['train', '--recipe', 'demo', '--model', 'model', '--data', 'scenes', ...short]

test('a run with relative paths is resumed, evaluated and compared from another working folder', () => {
  cpSync(join(root, 'assets/miniature'), join(here, 'model'), { recursive: true })
  roundtrip(here, 'data', 'make-scenes', '--n', '8', '--out', 'scenes')
  const run = join(scratch, 'outside')
  roundtrip(here, ...start, '--output', run)
  roundtrip(elsewhere, 'train', '--output', run, '--maxSteps', '2')
  const { model, dataPath, maxSteps } = settingsOf(run)
  assert.deepEqual([model, dataPath, maxSteps], [join(here, 'model'), join(here, 'scenes'), 2])
  roundtrip(here, ...start, '--output', run, '--maxSteps', '3')
  const { records, trainedOn } = JSON.parse(roundtrip(elsewhere, 'eval', '--adapter', run, '--json'))
  assert.deepEqual([records, trainedOn], [1, 0])
  assert.match(roundtrip(elsewhere, 'compare', '../outside', run), /^1 held-out record;/m)
})

test('a folder that was moved with its runs, model and records is used where it is now', () => {
  const moved = join(scratch, 'moved')
  roundtrip(here, ...start, '--output', 'runs/b')
  renameSync(here, moved)
  roundtrip(elsewhere, 'train', '--output', join(moved, 'runs/b'), '--maxSteps', '2')
  assert.equal(settingsOf(join(moved, 'runs/b'))['model'], join(moved, 'model'))
})
