import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { RecordBatchStreamWriter, Table } from 'apache-arrow'
import { boxRle, garRow, grey, rowsOf, testFolder } from '../../tests/support/data.ts'
import { encodePng } from '../image/index.ts'
import { type GarRow, garSchema, writeGarArrow } from './arrow/write.ts'
import type { DataOptions } from './config.ts'
import { BadRecord, type Reason } from './example.ts'
import { openLoader } from './loader.ts'
import { openSource } from './sources/open.ts'
import { answersOf, namesRegions } from './sources/regions.ts'

const root = testFolder()
const settings: DataOptions = { workers: 0, shuffle: false, maxRejectFraction: 0.5 }

/** Reads one epoch under both answers to bad records: skipped and counted, or refused by name. */
async function expectReject(path: string, usable: number, reason: Reason, named: RegExp): Promise<void> {
  const source = await openSource(path, settings)
  const skipping = openLoader(source, settings)
  let count = 0
  for await (const _ of skipping) count++
  assert.equal(count, usable)
  assert.deepEqual(skipping.rejects, { [reason]: 1 })
  assert.equal(skipping.rejected.length, 1)
  assert.match(skipping.rejected[0]!.message, named)
  await skipping.close()
  const stopping = openLoader(source, { ...settings, onBadRecord: 'stop' })
  const refused = async () => {
    for await (const _ of stopping);
  }
  await assert.rejects(
    refused(),
    (error) => error instanceof BadRecord && error.reason === reason && named.test(error.message),
  )
  await stopping.close()
  await source.close()
}

/** Three rows, the middle one changed. */
async function arrowWith(name: string, changes: Partial<GarRow>): Promise<string> {
  const folder = join(root, name)
  await writeGarArrow(folder, rowsOf([await garRow(0), await garRow(1, changes), await garRow(2)]))
  return folder
}

const answer = (value: string) => [
  { from: 'human', value: 'Describe.' },
  { from: 'gpt', value },
]

test('a truncated shard is refused with file and byte, or left out and counted', async () => {
  const folder = join(root, 'truncated')
  const rows = await Promise.all([0, 1, 2, 3].map((i) => garRow(i)))
  await writeGarArrow(folder, rowsOf(rows), { shardBytes: 1 })
  const shard = join(folder, 'data-00001-of-00004.arrow')
  truncateSync(shard, statSync(shard).size - 100)
  const refused = /data-00001-of-00004\.arrow: byte \d+: expected .* the file ends inside the body/
  await assert.rejects(
    openSource(folder, settings),
    (e) => e instanceof BadRecord && e.reason === 'broken-shard' && refused.test(e.message),
  )
  const source = await openSource(folder, { ...settings, skipBrokenShards: true })
  assert.equal(source.length, 3)
  assert.match(source.warnings.join('\n'), refused)
  const loader = openLoader(source, settings)
  for await (const _ of loader);
  assert.deepEqual(loader.rejects, { 'broken-shard': 1 })
  await loader.close()
  await source.close()
})

test('an unreadable image is counted and named', async () => {
  const path = await arrowWith('unreadable', { image: { bytes: Buffer.from('GIF? no'), path: null } })
  await expectReject(path, 2, 'image-unreadable', /data-00000-of-00001\.arrow: row 1: image: expected/)
})

test('an image cut in the middle is counted, not delivered half grey', async () => {
  const noise = Uint8Array.from({ length: 64 * 64 * 3 }, (_, i) => (i * 7919) % 251)
  const whole = await encodePng({ width: 64, height: 64, data: noise })
  const image = { bytes: whole.slice(0, whole.length / 2), path: null }
  const path = await arrowWith('half', { image, mask_rle: boxRle(64, 64, 1, 1, 9, 9) })
  await expectReject(path, 2, 'image-unreadable', /row 1: image: expected a complete/)
})

test('a missing image is counted and named', async () => {
  const path = await arrowWith('missing', { image: { bytes: null, path: 'gone.jpg' } })
  await expectReject(
    path,
    2,
    'image-missing',
    /row 1: image: expected a readable file, got ENOENT[^']*'[^']*gone\.jpg'$/,
  )
})

for (const [what, counts] of [
  ['too short', boxRle(24, 15, 1, 1, 5, 5).counts],
  ['too long', boxRle(24, 17, 1, 1, 5, 5).counts],
  ['cut inside a value', 'Q'],
] as const) {
  test(`an RLE that is ${what} is counted and named, never a zero mask`, async () => {
    const path = await arrowWith(`rle ${what}`, { mask_rle: { counts, size: [16, 24] } })
    await expectReject(path, 2, 'mask-unreadable', /row 1: mask_rle: expected .*rle-(short|overflow|truncated)/)
  })
}

test('a mask of another size than its image is counted and named', async () => {
  const path = await arrowWith('size', { mask_rle: boxRle(16, 24, 1, 1, 5, 5) })
  await expectReject(path, 2, 'size-mismatch', /row 1: image: expected the mask's 16 x 24, got 24 x 16/)
})

test('an empty caption is counted and named', async () => {
  const path = await arrowWith('caption', { conversations: answer(' \n ') })
  await expectReject(path, 2, 'empty-caption', /row 1: conversations: expected a caption, got white space/)
})

test('a record without an answer is counted and named', async () => {
  const path = await arrowWith('answer', { conversations: [{ from: 'human', value: 'Describe.' }] })
  await expectReject(path, 2, 'empty-caption', /row 1: conversations: expected a caption, got nothing/)
})

test('a turn that is null says nothing, as one without an answer', async () => {
  assert.deepEqual(answersOf([null, { from: 'gpt', value: 'a cup' }, { from: 'human', value: 'x' }]), ['a cup'])
  assert.equal(namesRegions([null, { from: 'human', value: 'what is <Prompt1>?' }]), true)
})

test('an empty mask is counted and named', async () => {
  const path = await arrowWith('mask', { mask_rle: boxRle(24, 16, 0, 0, 0, 0) })
  await expectReject(path, 2, 'empty-mask', /row 1: mask: expected at least one pixel inside, got none/)
})

test('an image of a few pixels is counted and named', async () => {
  const path = await arrowWith('tiny', {
    image: { bytes: await grey(9, 30), path: null },
    mask_rle: boxRle(9, 30, 1, 1, 5, 5),
  })
  await expectReject(path, 2, 'image-too-small', /row 1: image: expected at least 10 px a side, got 9 x 30/)
})

test('text that is not UTF-8 in Arrow is counted and named', async () => {
  const folder = await arrowWith('latin', { conversations: answer('caf\u00e9 XYZ') })
  const shard = join(folder, 'data-00000-of-00001.arrow')
  const bytes = readFileSync(shard)
  bytes[bytes.indexOf('caf\u00e9 XYZ') + 3] = 0xff
  writeFileSync(shard, bytes)
  await expectReject(folder, 2, 'not-utf8', /row 1: conversations\.value: expected UTF-8 text, got bytes 636166ff/)
})

async function jsonlWith(name: string, second: Record<string, unknown> | Buffer): Promise<string> {
  const folder = join(root, name)
  mkdirSync(folder)
  writeFileSync(join(folder, 'a.png'), await grey(24, 16))
  const record = (id: string) => ({ id, image: 'a.png', mask: boxRle(24, 16, 1, 2, 5, 6), caption: 'c' })
  const middle = Buffer.isBuffer(second) ? second : Buffer.from(JSON.stringify({ ...record('b'), ...second }))
  const text = (id: string) => Buffer.from(JSON.stringify(record(id)))
  const newline = Buffer.from('\n')
  writeFileSync(join(folder, 'set.jsonl'), Buffer.concat([text('a'), newline, middle, newline, text('c'), newline]))
  return join(folder, 'set.jsonl')
}

test('text that is not UTF-8 in JSONL is counted and named', async () => {
  const bad = Buffer.from('{"id":"b","image":"a.png","caption":"caf\xe9"}', 'latin1')
  await expectReject(
    await jsonlWith('jsonl-latin', bad),
    2,
    'not-utf8',
    /set\.jsonl: line 2: expected UTF-8 text, got bytes e9/,
  )
})

test('a duplicate id is counted and named', async () => {
  await expectReject(
    await jsonlWith('jsonl-twice', { id: 'a' }),
    2,
    'duplicate-id',
    /set\.jsonl: line 2: id: expected an id used once, got a/,
  )
})

test('a line that is not JSON is counted and named', async () => {
  await expectReject(
    await jsonlWith('jsonl-torn', Buffer.from('{"id": "b", "im')),
    2,
    'bad-record',
    /set\.jsonl: line 2: expected a JSON object/,
  )
})

test('a record nested so deep that walking it overflows the stack is counted and named', async () => {
  for (const field of ['extra', 'category', 'mask']) {
    const deep = `{"id": "b", "image": "a.png", "caption": "c", "${field}": ${'['.repeat(100_000)}${']'.repeat(100_000)}}`
    const path = await jsonlWith(`jsonl-deep-${field}`, Buffer.from(deep))
    await expectReject(path, 2, 'bad-record', /set\.jsonl: line 2: expected a JSON object, got more than 1000 levels/)
  }
})

test('a record without a mask is counted and named', async () => {
  await expectReject(await jsonlWith('jsonl-none', { mask: null }), 2, 'no-mask', /set\.jsonl: line 2: mask: expected/)
})

test('a file that begins with a byte order mark keeps the id of its first record', async () => {
  const path = await jsonlWith('jsonl-mark', { id: 'b' })
  writeFileSync(path, Buffer.concat([Buffer.of(0xef, 0xbb, 0xbf), readFileSync(path)]))
  const source = await openSource(path, settings)
  assert.deepEqual([source.id(0), (await source.get(0)).id, source.id(1)], ['a', 'a', 'b'])
  await source.close()
})

test('zero records are refused', async () => {
  const empty = join(root, 'empty.jsonl')
  writeFileSync(empty, '\n')
  await assert.rejects(openSource(empty, settings), /empty\.jsonl: records: expected at least one, got 0/)
  const shard = join(root, 'no-rows.arrow')
  writeFileSync(shard, RecordBatchStreamWriter.writeAll(new Table(garSchema)).toUint8Array(true))
  await assert.rejects(openSource(shard, settings), /no-rows\.arrow: records: expected at least one, got 0/)
})

test('more unusable records than allowed end the run with the counts and the last one', async () => {
  const folder = join(root, 'many')
  const bad = { conversations: answer('') }
  await writeGarArrow(folder, rowsOf(await Promise.all([0, 1, 2, 3].map((i) => garRow(i, i < 2 ? bad : {})))))
  const source = await openSource(folder, settings)
  const loader = openLoader(source, { ...settings, maxRejectFraction: 0.25 })
  const run = async () => {
    for (let i = 0; i < 20; i++) await loader.next()
  }
  await assert.rejects(
    run(),
    /unusable records: expected at most 25 % .* got 2 of 4: empty-caption 2|got \d of \d: empty-caption/,
  )
  await assert.rejects(loader.next(), /unusable records/)
  await loader.close()
  await source.close()
})

test('a set without a single usable record ends with its reasons instead of turning for ever', async () => {
  const folder = join(root, 'hopeless')
  await writeGarArrow(folder, rowsOf([await garRow(0, { conversations: answer('') })]))
  const source = await openSource(folder, settings)
  const loader = openLoader(source, { ...settings, maxRejectFraction: 1 })
  await assert.rejects(loader.next(), /unusable records.*got 1 of 1: empty-caption 1/)
  await loader.close()
  await source.close()
})
