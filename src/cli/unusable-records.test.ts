// Commands that evaluate or check records leave out those that cannot be used.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { openSource } from '../data/index.ts'
import { encodePng } from '../image/index.ts'
import { encodeRle } from '../mask/index.ts'

const root = join(import.meta.dirname, '../..')
const scratch = mkdtempSync(join(tmpdir(), 'unusable-'))
const data = join(scratch, 'records.jsonl')
after(() => rmSync(scratch, { recursive: true, force: true }))

/** Four records; the image of the first is cut off. */
before(async () => {
  const source = await openSource('scenes:4')
  const rows: string[] = []
  for (let i = 0; i < 4; i++) {
    const { image, mask, caption } = await source.get(i)
    const png = await encodePng(image)
    writeFileSync(join(scratch, `${i}.png`), i === 0 ? png.subarray(0, 40) : png)
    rows.push(JSON.stringify({ id: `r${i}`, image: `${i}.png`, mask: encodeRle(mask), caption }))
  }
  await source.close()
  writeFileSync(data, rows.join('\n'))
})

function roundtrip(...args: string[]) {
  const words = ['bin/roundtrip.mjs', ...args, '--data', data, '--threads', '1', '--rl.maxCompletionLength', '8']
  return spawnSync(process.execPath, words, { cwd: root, encoding: 'utf8' })
}

test('an evaluation is over when all usable records are read, and compares two models', () => {
  const words = ['--model', 'assets/miniature', '--json']
  const { records, stopped } = JSON.parse(roundtrip('eval', ...words, '--evalBatch', '2').stdout)
  assert.deepEqual([records, stopped], [3, false])
  assert.equal(JSON.parse(roundtrip('eval', ...words, '--evalBatch', '3').stdout).stopped, false)
  const compared = roundtrip('compare', 'assets/miniature', 'assets/miniature', '--json', '--out', scratch)
  assert.equal(compared.status, 0, compared.stderr)
  assert.equal(JSON.parse(compared.stdout).records, 3, compared.stderr)
})

test('doctor checks the model with the records that can be used', () => {
  const done = roundtrip('doctor', '--model', 'assets/miniature')
  assert.match(done.stderr, /warn: skipped \(image-unreadable\): .*line 1/)
  assert.match(done.stdout, /^verdict: /m, done.stderr)
  const strict = roundtrip('doctor', '--model', 'assets/miniature', '--data.onBadRecord', 'stop')
  assert.match(strict.stderr, /^error: .*line 1: image/m)
})
