import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { findGolden, verifyGolden } from './index.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden/sentencepiece-tiny')

test('a folder of SentencePiece cases is recognized by its content, and every case has the ids and texts of the library', async () => {
  const { found } = findGolden(golden)
  assert.deepEqual(found, [{ path: golden, kind: 'sentencepiece' }])
  const rows = await verifyGolden(found[0]!)
  assert.deepEqual(
    rows.filter((r) => !r.pass),
    [],
  )
  assert.equal(rows.length, 3 * 300 + 56 + 56 + 33 + 1 + 161)
})

test('a wrong id, piece or decoded text of a case is reported by name', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'spm-golden-'))
  t.after(() => rmSync(dir, { recursive: true }))
  cpSync(golden, dir, { recursive: true })
  const cases = JSON.parse(readFileSync(join(golden, 'cases.json'), 'utf8'))
  const [, internlm2] = cases.models
  internlm2.cases[3].ids = [1]
  internlm2.cases[4].pieces = ['x']
  internlm2.decode[5].decoded = 'x'
  internlm2.added.cases[6].decoded_skip_special = 'x'
  writeFileSync(join(dir, 'cases.json'), JSON.stringify(cases))
  const failed = (await verifyGolden({ path: dir, kind: 'sentencepiece' })).filter((r) => !r.pass)
  assert.deepEqual(
    failed.map((r) => /^(ids|pieces|decoded\w*):/.exec(r.detail ?? '')?.[1]),
    ['ids', 'pieces', 'decoded', 'decoded_skip_special'],
  )
})
