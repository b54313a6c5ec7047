import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { openWholeFolder, requireNoModel } from './whole-folder.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-whole-'))
after(() => rmSync(folder, { recursive: true, force: true }))

function fill(path: string, text: string): void {
  for (const name of ['config.json', 'model.safetensors']) writeFileSync(join(path, name), text)
}

const textIn = (out: string) => readFileSync(join(out, 'model.safetensors'), 'utf8')

test('a new folder appears with all of its files; one that was given up leaves nothing', () => {
  const out = join(folder, 'new')
  const first = openWholeFolder(out)
  fill(first.unfinished, 'a')
  assert.ok(!existsSync(out), 'nothing there before the commit')
  first.discard()
  assert.deepEqual(readdirSync(folder), [])
  const second = openWholeFolder(out)
  fill(second.unfinished, 'b')
  second.commit()
  assert.deepEqual(readdirSync(folder), ['new'])
  assert.equal(textIn(out), 'b')
})

test('a folder that holds a model is refused, and left as it was', () => {
  const out = join(folder, 'taken')
  mkdirSync(out)
  fill(out, 'old')
  assert.throws(() => requireNoModel(out), /taken: expected a folder without a model, got config\.json/)
  assert.deepEqual([readdirSync(out).sort(), textIn(out)], [['config.json', 'model.safetensors'], 'old'])
})

test('what a killed export left, before or while its files were moved, does not block the next one; other files stay', () => {
  const out = join(folder, 'killed')
  mkdirSync(out)
  writeFileSync(join(out, 'notes.txt'), 'mine')
  const dead = openWholeFolder(out)
  fill(dead.unfinished, 'half')
  writeFileSync(join(out, 'model.safetensors'), 'moved before the kill')
  requireNoModel(out)
  const next = openWholeFolder(out)
  assert.deepEqual(readdirSync(next.unfinished), [])
  fill(next.unfinished, 'whole')
  next.commit()
  assert.deepEqual(readdirSync(out).sort(), ['config.json', 'model.safetensors', 'notes.txt'])
  assert.equal(textIn(out), 'whole')
})
