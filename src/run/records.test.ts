import assert from 'node:assert/strict'
import { join } from 'node:path'
import test from 'node:test'
import { garRow, rowsOf, testFolder } from '../../tests/support/data.ts'
import { BadRecord, writeGarArrow } from '../data/index.ts'
import { type RunInput, resolveRun } from './config.ts'
import { describeRejects, openRecords, splitText } from './records.ts'

const root = testFolder()

const open = (input: RunInput) =>
  openRecords(resolveRun({ dataPath: 'scenes:12', batchSize: 1, ...input, data: { workers: 0, ...input.data } }))

test('a held-out share below one record is raised to the next size, with a message', async () => {
  const { heldOut, loader, notices, source, close } = await open({ evalRecords: 9, data: { evalFraction: 1e-6 } })
  await close()
  assert.ok(heldOut.length > 0 && loader.epochLength === source.length - heldOut.length, `${heldOut.length} held out`)
  assert.deepEqual(
    notices.map(({ text }) => text.replace(/^\S+: /, '')),
    [
      `data.evalFraction 0.000001 of 12 records is none; ${heldOut.length} held out instead (--evalRecords 0 holds out none)`,
    ],
  )
})

test('at least min(evalRecords, a tenth) is held out, and the counts of records add up', async () => {
  const counts = async (input: RunInput) => {
    const records = await open(input)
    await records.close()
    const { heldOut, facts } = records
    const { held_out = 0 } = facts
    assert.deepEqual([facts.trained + held_out, facts.evaluated], [facts.records, heldOut.length])
    return { heldOut: heldOut.length, ...facts, held_out, text: splitText(records, resolveRun(input)) }
  }
  const few = await counts({ dataPath: 'scenes:320' })
  assert.deepEqual([few.records, few.held_out, few.heldOut], [320, 32, 32])
  assert.equal(few.text, '288 to train on, 32 held out, 32 of them evaluated')
  const asked = await counts({ dataPath: 'scenes:320', evalRecords: 8 })
  assert.ok(asked.held_out >= 8 && asked.heldOut === 8, asked.text)
  assert.match(asked.text, /^\d+ to train on, \d+ held out, 8 of them evaluated$/)
  const large = await counts({ dataPath: 'scenes:320', data: { evalFraction: 0.5 } })
  assert.ok(large.held_out > 120 && large.heldOut === 64, large.text)
  const other = await counts({ dataPath: 'scenes:40', evalPath: 'scenes:9:5' })
  assert.equal(other.text, '40 to train on, 9 of scenes:9:5 evaluated')
  assert.equal('eval_fraction' in other, false, 'nothing of dataPath is held out')
})

test('of fewer than ten records one is held out', async () => {
  const { heldOut, loader, close } = await open({ dataPath: 'scenes:5' })
  await close()
  assert.deepEqual([heldOut.length, loader.epochLength], [1, 4])
})

test('splitBy place holds out what 0.1.0 did: the asked share, or one record', async () => {
  const { heldOut, close } = await open({ dataPath: 'scenes:320', data: { splitBy: 'place', evalFraction: 1e-6 } })
  await close()
  assert.equal(heldOut.length, 1)
})

test('a share of nothing or of all evaluates nothing, and says so; asked for none, it says nothing', async () => {
  for (const evalFraction of [0, 1]) {
    const { heldOut, loader, notices, close } = await open({ evalRecords: 9, data: { evalFraction } })
    await close()
    assert.deepEqual([heldOut.length, loader.epochLength], [0, 12])
    assert.match(notices.map(({ text }) => text).join(), /holds out none: nothing is evaluated$/)
  }
  const { notices, close } = await open({ evalRecords: 0, data: { evalFraction: 0 } })
  await close()
  assert.deepEqual(notices, [])
})

test('a batch larger than what there is to train on is refused with one that would do', async () => {
  const started = open({ batchSize: 13, evalRecords: 0 })
  await assert.rejects(
    started,
    /records to train on: expected at least batchSize \(13\), got 12 of 12\. --batchSize 12/,
  )
})

test('of records that could not be used the new ones are named, five at most', () => {
  const bad = (i: number) => new BadRecord('no-mask', { where: `file: line ${i}`, expected: 'a mask', got: null })
  const rejected = Array.from({ length: 9 }, (_, i) => bad(i))
  const rejects = { 'no-mask': 9, 'image-missing': 2 }
  const head = 'records that could not be used so far: 9 no-mask, 2 image-missing'
  assert.equal(describeRejects({ rejects, rejected }, 1), `${head}; new: file: line 8 (no-mask)`)
  const many = describeRejects({ rejects, rejected }, 7)
  assert.match(many, /; new: file: line 2 \(no-mask\), .*, file: line 6 \(no-mask\), 2 more$/)
  assert.equal(describeRejects({ rejects, rejected: [] }, 1), head)
})

test('one unreadable record among a few held out is skipped: the limit is a share of the data, not of that part', async () => {
  const rows = await Promise.all(Array.from({ length: 80 }, (_, i) => garRow(i)))
  const opened = async (name: string, input: RunInput = {}) => {
    const dataPath = join(root, name)
    await writeGarArrow(dataPath, rowsOf(rows))
    const records = await open({ dataPath, ...input })
    await records.close()
    return records.heldOut.map(({ caption }) => caption)
  }
  const whole = await opened('whole')
  assert.ok(whole.length >= 8 && whole.length < 20, `${whole.length} held out`)
  const bad = rows[Number(whole.at(-1)!.split(' ')[1])]!
  bad.image.bytes = Buffer.from('not an image')
  assert.deepEqual(await opened('bad'), whole.slice(0, -1))
  for (const row of rows) row.image.bytes = bad.image.bytes
  await assert.rejects(opened('all-bad'), /unusable records: .* got \d+ of \d+: image-unreadable/)
})
