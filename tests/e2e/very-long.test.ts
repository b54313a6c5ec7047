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

function damFolder(name: string): string {
  const subset = join(folder, name)
  mkdirSync(join(subset, 'images'), { recursive: true })
  copyFileSync(join(fixtures, '00000000.tar'), join(subset, 'images', '00000000.tar'))
  return subset
}

test('an image whose name begins with a million zeros is searched in one pass over the name', () => {
  const subset = damFolder('LVIS')
  const samples = JSON.parse(readFileSync(join(fixtures, 'dam-annotations.json'), 'utf8'))
  const name = '0'.repeat(1_000_000) // half an hour if each of its places were a start
  samples['391895'] = [{ ...samples['391895'][0], image: `${name}x` }]
  writeFileSync(join(subset, 'annotations.json'), JSON.stringify(samples))
  const { status, stdout, signal } = inspect(subset)
  assert.equal(signal, null)
  assert.equal(status, 0)
  assert.match(stdout, /unusable: 0 of 3 checked/)
})

/** A pax header of a tar archive with its fields. */
function paxHeader(fields: string): Buffer {
  const head = Buffer.alloc(512)
  head.write(fields.length.toString(8), 124)
  head.write('x', 156)
  return Buffer.concat([head, Buffer.from(fields), Buffer.alloc(-fields.length & 511)])
}

test('headers of a tar archive are read in one pass, whatever fields they have and however many follow each other', () => {
  const own = Array.from({ length: 20_000 }, (_, i) => {
    const fields = Array.from({ length: 70 }, (_, k) => `14 k${i * 70 + k}`.padEnd(12, 'x')).map((text) => `${text}=\n`)
    return paxHeader(fields.join(''))
  })
  const archives = { digits: paxHeader(`${'1\n'.repeat(500_000)} `), fields: Buffer.concat(own) }
  for (const [name, headers] of Object.entries(archives)) {
    const subset = damFolder(name)
    writeFileSync(
      join(subset, 'images', '00000000.tar'),
      Buffer.concat([headers, readFileSync(join(fixtures, '00000000.tar'))]),
    )
    copyFileSync(join(fixtures, 'dam-annotations.json'), join(subset, 'annotations.json'))
    const { status, stdout, signal } = inspect(subset)
    assert.equal(signal, null, name)
    assert.equal(status, 0)
    assert.match(stdout, /unusable: 0 of 4 checked/)
  }
})
