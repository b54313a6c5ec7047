import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  closeSync,
  copyFileSync,
  mkdirSync,
  openSync,
  readFileSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { boxRle, fixtures, garRow, grey, rowsOf, testFolder } from '../../tests/support/data.ts'
import { Mismatch } from '../core/index.ts'
import { scanShard } from './arrow/messages.ts'
import { writeGarArrow } from './arrow/write.ts'
import { BadRecord } from './example.ts'
import { ChangedFile, FilePool } from './files.ts'
import { openLoader } from './loader.ts'
import { openSource } from './sources/open.ts'

const root = testFolder()
const damaged = join(fixtures, 'damaged')

// one field of a real file changed: what each asks for, and the place that the refusal must name
const files: [string, RegExp][] = [
  ['neg-body-loop.arrow', /message at byte \d+: expected a body of 0 bytes or more, got -768/],
  ['FATAL_HANG-85.arrow', /message at byte \d+: expected offsets and counts inside its \d+ bytes/],
  ['FATAL_HANG-1706.arrow', /message at byte \d+: expected offsets and counts inside its \d+ bytes/],
  ['FATAL_HANG-2047.arrow', /message at byte \d+: expected offsets and counts inside its \d+ bytes/],
  ['FATAL_HANG-1225.arrow', /footer at byte \d+: expected 3 record batches and 0 dictionaries, got 2 and 0/],
  ['typeerror.arrow', /at byte \d+: expected/],
  ['rows-1e9.arrow', /record batch at byte \d+: expected rows that its \d+ bytes can hold, got 1000000000 rows/],
  ['rows-neg.arrow', /record batch at byte \d+: expected rows .* got -1 rows/],
  ['rows1e12.parquet', /num_rows: expected the 8200 rows of its row groups, got 1000000000000/],
  ['rows4100.parquet', /num_rows: expected the 8200 rows of its row groups, got 4100/],
  ['rowsneg.parquet', /num_rows: expected the 8200 rows of its row groups, got -5/],
  ['refused_Error-12.parquet', /page at byte \d+: expected/],
]

async function refusal(path: string): Promise<Mismatch> {
  try {
    const source = await openSource(path)
    await source.close()
  } catch (error) {
    assert.ok(error instanceof Mismatch, `${basename(path)}: ${error}`)
    return error
  }
  throw new assert.AssertionError({ message: `${basename(path)} was opened` })
}

for (const [name, place] of files) {
  test(`${name} is refused at once, with the file and the place`, { timeout: 600_000 }, async () => {
    const { message } = await refusal(join(damaged, name))
    assert.ok(message.startsWith(join(damaged, name)), message)
    assert.match(message, place)
  })
}

test('skipBrokenShards continues without every kind of broken shard and names them', {
  timeout: 1_200_000,
}, async () => {
  for (const [name] of files.filter(([n]) => n.endsWith('.arrow'))) {
    const folder = join(root, `skip-${name}`)
    await writeGarArrow(folder, rowsOf([await garRow(0), await garRow(1)]))
    copyFileSync(join(damaged, name), join(folder, 'data-00001-of-00002.arrow'))
    const state = { _data_files: [0, 1].map((i) => ({ filename: `data-0000${i}-of-0000${i + 1}.arrow` })) }
    state._data_files[1] = { filename: 'data-00001-of-00002.arrow' }
    writeFileSync(join(folder, 'state.json'), JSON.stringify(state))
    await assert.rejects(openSource(folder), BadRecord)
    const source = await openSource(folder, { skipBrokenShards: true })
    assert.equal(source.length, 2, name)
    assert.deepEqual(
      source.broken.map((b) => b.reason),
      ['broken-shard'],
    )
    assert.ok(source.warnings.some((w) => w.includes('data-00001-of-00002.arrow')))
    await source.close()
  }
})

test('skipBrokenShards passes over broken Parquet and JSONL files too', async () => {
  const parquet = join(root, 'parquet')
  mkdirSync(parquet)
  copyFileSync(join(fixtures, 'train-00000-of-00001.parquet'), join(parquet, 'train-00000-of-00002.parquet'))
  copyFileSync(join(damaged, 'refused_Error-12.parquet'), join(parquet, 'train-00001-of-00002.parquet'))
  await assert.rejects(openSource(parquet), /train-00001-of-00002\.parquet/)
  const source = await openSource(parquet, { skipBrokenShards: true })
  assert.deepEqual([source.length, source.broken.length], [7, 1])
  await source.close()

  const jsonl = join(root, 'jsonl')
  mkdirSync(jsonl)
  writeFileSync(join(jsonl, 'x.png'), await grey(24, 16))
  const line = JSON.stringify({ image: 'x.png', mask: boxRle(24, 16, 1, 1, 5, 5), caption: 'a box' })
  writeFileSync(join(jsonl, 'a.jsonl'), `${line}\n`)
  writeFileSync(join(jsonl, 'b.jsonl'), 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n')
  await assert.rejects(openSource(jsonl), /b\.jsonl: .*Git LFS pointer/)
  const lines = await openSource(jsonl, { skipBrokenShards: true })
  assert.deepEqual([lines.length, lines.broken.length], [1, 1])
  assert.ok(lines.warnings.some((w) => /skipped: .*b\.jsonl/.test(w)))
  await lines.close()
})

test('a shard whose end is zeros, as an interrupted download leaves it, is refused instead of read in part', async () => {
  const path = join(root, 'zeros.arrow')
  const whole = join(fixtures, 'shapes.arrow')
  const { batches, rows } = await scanShard(whole)
  const cut = batches[1]!.metaOffset - 8
  copyFileSync(whole, path)
  truncateSync(path, cut)
  assert.ok((await scanShard(path)).rows < rows) // a stream may end between two messages
  appendFileSync(path, Buffer.alloc(4096))
  await assert.rejects(
    scanShard(path),
    /zeros\.arrow: byte \d+: expected the end of the file, got 409\d bytes after it/,
  )
})

test('a file whose footer lists more batches than are found is refused', async () => {
  const path = join(root, 'footer.arrow')
  const bytes = readFileSync(join(fixtures, 'shapes-file.arrow'))
  copyFileSync(join(fixtures, 'shapes-file.arrow'), path)
  const { batches } = await scanShard(path)
  bytes.writeInt32LE(0, batches[1]!.metaOffset - 4) // an end of the stream before the second batch
  writeFileSync(path, bytes)
  await assert.rejects(scanShard(path), /footer\.arrow: footer at byte \d+: expected \d+ record batches/)
})

test('JSONL values of any type are bad records, never internal errors', async () => {
  const path = join(root, 'types.jsonl')
  const odd = [-1, 0, '', 'x', [], [1], {}, null, true, 1e308, [[]], { length: 5 }, ['__proto__']]
  const lines = odd.flatMap((value) => [
    { image: 'x.png', mask: { polygons: [[1, 1, 5, 1, 5, 5]], size: value }, caption: 'a' },
    { image: 'x.png', mask: { polygons: value, size: [16, 24] }, caption: 'a' },
    { image: 'x.png', mask: { polygons: [value], size: [16, 24] }, caption: 'a' },
    { image: 'x.png', mask: { size: value, counts: 'abc' }, caption: 'a' },
    { image: 'x.png', mask: { size: [16, 24], counts: value }, caption: 'a' },
    { image: 'x.png', mask: value, caption: 'a' },
    { image: value, mask: { size: [16, 24], counts: [384] }, caption: 'a' },
    { image: 'x.png', mask: { size: [16, 24], counts: [384] }, caption: value, category: value },
    value,
  ])
  writeFileSync(path, lines.map((line) => JSON.stringify(line)).join('\n'))
  const source = await openSource(path)
  for (let i = 0; i < source.length; i++) await assert.rejects(source.get(i), BadRecord, JSON.stringify(lines[i]))
  await source.close()
})

test('a shard that changes while it is being read ends the run with its name, not as a bad record', async (t) => {
  const folder = join(root, 'changing')
  await writeGarArrow(folder, rowsOf(await Promise.all([0, 1, 2, 3].map((i) => garRow(i)))))
  const shard = join(folder, 'data-00000-of-00001.arrow')
  const pool = new FilePool({ recheckMs: 0 })
  pool.watch(shard)
  await pool.read(shard, 0, 16)
  utimesSync(shard, new Date(), new Date(Date.now() + 5000))
  const hourAgo = Date.now() - 3_600_000
  t.mock.method(Date, 'now', () => hourAgo) // a clock that is set back delays no check
  await assert.rejects(pool.read(shard, 0, 16), (error) => {
    assert.ok(error instanceof ChangedFile)
    assert.match(error.message, /data-00000-of-00001\.arrow: expected the file that the run began with/)
    return true
  })
  await pool.close()
})

test('a loader stops when a shard was cut under it', async () => {
  const folder = join(root, 'cutting')
  await writeGarArrow(folder, rowsOf(await Promise.all(Array.from({ length: 40 }, (_, i) => garRow(i)))))
  const source = await openSource(folder)
  const loader = openLoader(source, { workers: 0, prefetch: 1, shuffle: false })
  await loader.next()
  truncateSync(join(folder, 'data-00000-of-00001.arrow'), 100)
  const rest = async () => {
    for (let i = 0; i < 200; i++) await loader.next()
  }
  // the block cache still serves its bytes; the change is an error at the next check, after at most a second
  await assert.rejects(
    async () => {
      for (const end = Date.now() + 600_000; Date.now() < end; ) await rest()
    },
    (error) => error instanceof ChangedFile && /cutting/.test(error.message),
  )
  await loader.close()
  await source.close()
})

test('devices, pipes and folders named as image or mask are bad records, at once', { timeout: 600_000 }, async () => {
  const folder = join(root, 'devices')
  mkdirSync(folder)
  execFileSync('mkfifo', [join(folder, 'pipe')])
  writeFileSync(join(folder, 'x.png'), await grey(24, 16))
  const rle = boxRle(24, 16, 1, 1, 5, 5)
  const places = ['/dev/zero', 'pipe', '.', '/dev/tty', 'absent.png']
  const lines = places.flatMap((place) => [
    { image: place, mask: rle, caption: 'a' },
    { image: 'x.png', mask: place, caption: 'a' },
  ])
  writeFileSync(join(folder, 'd.jsonl'), lines.map((line) => JSON.stringify(line)).join('\n'))
  const source = await openSource(join(folder, 'd.jsonl'))
  for (let i = 0; i < source.length; i++) await assert.rejects(source.get(i), BadRecord, JSON.stringify(lines[i]))
  await assert.rejects(
    source.get(0),
    /expected a readable file, got .*\/dev\/zero: expected a regular file, got a device/,
  )
  await source.close()
  await assert.rejects(openSource(join(folder, 'pipe')), Mismatch)
})

test('a line of more than 16 MiB is a bad record and is never loaded into memory', { timeout: 1_200_000 }, async () => {
  const path = join(root, 'long.jsonl')
  const file = openSync(path, 'w')
  for (let i = 0; i < 300; i++) writeSync(file, Buffer.alloc(1 << 20, 0x78))
  writeSync(file, `\n${JSON.stringify({ image: 'x.png', mask: boxRle(24, 16, 1, 1, 5, 5), caption: 'short' })}\n`)
  closeSync(file)
  const before = process.memoryUsage().rss
  const source = await openSource(path)
  assert.ok(process.memoryUsage().rss - before < 150e6)
  assert.equal(source.length, 2)
  await assert.rejects(
    source.region(0),
    /long\.jsonl: line 1: expected a line of at most 16777216 bytes, got 314572800/,
  )
  assert.equal((await source.region(1)).caption, 'short')
  await source.close()
})

test('names that lead out of the folder are refused in state.json, dataset_dict.json and instances.json', async () => {
  const secret = join(root, 'outside')
  await writeGarArrow(secret, rowsOf([await garRow(0)]))
  const folder = join(root, 'inside')
  mkdirSync(folder)
  for (const filename of [
    '../outside/data-00000-of-00001.arrow',
    join(secret, 'data-00000-of-00001.arrow'),
    'a/../../b',
  ]) {
    writeFileSync(join(folder, 'state.json'), JSON.stringify({ _data_files: [{ filename }] }))
    await assert.rejects(openSource(folder), /state\.json: _data_files: expected a file below that folder/)
  }
  const dict = join(root, 'dict')
  mkdirSync(dict)
  writeFileSync(join(dict, 'dataset_dict.json'), JSON.stringify({ splits: ['../outside'] }))
  await assert.rejects(openSource(dict), /dataset_dict\.json: splits: expected a file below that folder/)

  const coco = join(root, 'refcoco')
  mkdirSync(join(coco, 'images'), { recursive: true })
  const sentences = [{ sent_id: 1, raw: 'a', sent: 'a' }]
  writeFileSync(join(coco, 'refs.json'), JSON.stringify([{ ref_id: 1, ann_id: 1, split: 'train', sentences }]))
  const images = [{ id: 1, file_name: '../../../etc/passwd', height: 16, width: 24 }]
  const annotations = [{ id: 1, image_id: 1, segmentation: [[1, 1, 9, 1, 9, 9]] }]
  writeFileSync(join(coco, 'instances.json'), JSON.stringify({ images, annotations }))
  await assert.rejects(openSource(coco), /instances\.json: image 1: file_name: expected a file below that folder/)
})
