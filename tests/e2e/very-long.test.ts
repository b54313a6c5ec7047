// Data of other people may have texts of any length: what reads them passes over each once.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { fixtures } from '../support/data.ts'
import { scratch } from '../support/runs.ts'
import { program } from './cli.ts'

const folder = scratch('very-long')
after(() => rmSync(folder, { recursive: true, force: true }))

/** A process that is ended after two minutes; it takes seconds. */
function inspect(path: string) {
  const words = [program, 'data', 'inspect', path]
  return spawnSync(process.execPath, words, { encoding: 'utf8', timeout: 120_000, killSignal: 'SIGKILL' })
}

test('an image whose name begins with a million zeros is searched in one pass over the name', () => {
  const subset = join(folder, 'LVIS')
  mkdirSync(join(subset, 'images'), { recursive: true })
  copyFileSync(join(fixtures, '00000000.tar'), join(subset, 'images', '00000000.tar'))
  const samples = JSON.parse(readFileSync(join(fixtures, 'dam-annotations.json'), 'utf8'))
  const name = '0'.repeat(1_000_000) // half an hour if each of its places were a start
  samples['391895'] = [{ ...samples['391895'][0], image: `${name}x` }]
  writeFileSync(join(subset, 'annotations.json'), JSON.stringify(samples))
  const { status, stdout, signal } = inspect(subset)
  assert.equal(signal, null)
  assert.equal(status, 0)
  assert.match(stdout, /unusable: 0 of 3 checked/)
})
