import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { tableFromArrays, tableToIPC } from 'apache-arrow'
import { boxRle, testFolder } from '../../../tests/support/data.ts'
import { withinMinute } from '../../../tests/support/in-time.ts'
import { BadRecord } from '../example.ts'
import { FilePool } from '../files.ts'
import { regionOfRow } from './regions.ts'
import { openSegZero, placesOf } from './seg-zero.ts'

test('a number of a region that no row can have stays as it is written', async () => {
  const columns = { image: 'image', mask: 'mask', text: 'text', category: null, id: null }
  const far = `<Prompt${'9'.repeat(400)}>`
  const row = { mask: [1, 2].map(() => boxRle(24, 16, 1, 2, 5, 6)), text: `<Prompt0> next to <Prompt27>, not ${far}` }
  const { caption } = await regionOfRow(row, columns, 0, false, 'row 1')
  assert.equal(caption, `Region A next to Region AB, not ${far}`)
})

test('tags of a solution that nothing closes are read in one pass', () => {
  const size = { width: 840, height: 840 }
  const places = '<box>(1,2),(3,4)</box> and <points>(5,6)</points>'
  assert.deepEqual(placesOf(`${places}<box>`, size, 'row 1').points, [[5, 6]])
  for (const open of ['<box>', '<points>', `${places.slice(0, -1)}<points>`])
    assert.throws(
      () => withinMinute(() => placesOf(open.repeat(400_000), size, 'row 1')),
      (error) => error instanceof BadRecord && error.message.startsWith('row 1: solution: expected <box>'),
    )
})

test('rows of Seg-Zero shards are known by their ids, and by their number if the id is empty', async () => {
  const folder = testFolder()
  for (const [part, id] of [
    ['', 'r1'],
    ['r2', ''],
  ].entries()) {
    const path = join(folder, `data-0000${part}-of-00002.arrow`)
    writeFileSync(path, tableToIPC(tableFromArrays({ id, problem: ['a', 'b'] }), 'stream'))
  }
  const pool = new FilePool()
  const source = await openSegZero(folder, join(folder, 'masks'), pool)
  assert.deepEqual([0, 1, 2, 3].map((i) => source.key!(i)), ['0', 'r1', 'r2', '3']) // biome-ignore format: one line
  await pool.close()
})
