import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { after } from 'node:test'
import { openSource } from './open.ts'

const folder = mkdtempSync(join(tmpdir(), 'roundtrip-module-'))
after(() => rmSync(folder, { recursive: true, force: true }))

/** Two records of 12 x 12: a grey picture with an empty mask, and one with a mask of 9 pixels. */
function moduleText(ids: string, fields = ''): string {
  return `
const size = { width: 12, height: 12 }
export const source = {
  name: 'own', length: 2, id: (i) => (${ids})[i],
  region: (i) => ({
    id: (${ids})[i], where: 'own: record ' + i, caption: 'record ' + i, meta: {},
    image: { rgb: { ...size, data: new Uint8Array(432).fill(7) } },
    mask: { ...size, counts: i === 0 ? Uint32Array.of(144) : Uint32Array.of(0, 9, 135) },
  }),${fields}
}`
}

function write(name: string, text: string): string {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

test('a module that exports `source` is read as a dataset; its unusable records are counted by reason', async () => {
  const source = await openSource(write('own.mjs', moduleText("['a', 'b']")))
  assert.equal(source.length, 2)
  assert.equal(source.id(1), 'b')
  const { caption, mask, image } = await source.get(1)
  assert.equal(caption, 'record 1')
  assert.equal(mask.width * image.height, 144)
  await assert.rejects(source.get(0), /own: record 0: mask: expected at least one pixel inside/)
})

test('the fingerprint follows the ids and the file, unless the module has one', async () => {
  const one = await openSource(write('one.mjs', moduleText("['a', 'b']")))
  const two = await openSource(write('two.mjs', moduleText("['a', 'c']")))
  const named = await openSource(write('named.mjs', moduleText("['a', 'c']", " fingerprint: 'v1',")))
  assert.notEqual(one.fingerprint, two.fingerprint)
  assert.equal(named.fingerprint, 'v1')
})

test('ids used twice, missing functions and masks that are not run lengths are rejected by field', async () => {
  await assert.rejects(
    openSource(write('twice.mjs', moduleText("['a', 'a']"))),
    /source\.id\(1\): expected a text used/,
  )
  const text = "export const source = { name: 'x', length: 1, id: () => 'a' }"
  await assert.rejects(openSource(write('bare.mjs', text)), /source\.region: expected a function/)
  const dense = await openSource(write('dense.mjs', moduleText("['a', 'b']").replace('counts:', 'data:')))
  await assert.rejects(dense.get(1), /own: record 1: mask: expected run lengths/)
  await assert.rejects(openSource(write('none.mjs', 'export const other = 1')), /expected `source`/)
})
