import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { boxRle, grey, testFolder } from '../../../tests/support/data.ts'
import { openSource } from './open.ts'

const root = testFolder()

/** A tar entry: a head of 512 bytes, then the file filled up to 512. */
function tarEntry(name: string, bytes: Uint8Array): Buffer {
  const head = Buffer.alloc(512)
  head.write(name)
  head.write(`${bytes.length.toString(8).padStart(11, '0')} `, 124)
  head.write('0ustar', 156)
  head.fill(' ', 148, 156)
  const sum = head.reduce((a, b) => a + b, 0)
  head.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return Buffer.concat([head, bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)])
}

type Archives = Record<string, Record<string, number>>

/** Pictures of one grey level by archive and name, and a region of each of them. */
async function subset(name: string, archives: Archives, regions: Record<string, Record<string, unknown>>) {
  const folder = join(root, name)
  mkdirSync(join(folder, 'images'), { recursive: true })
  for (const [archive, files] of Object.entries(archives)) {
    const entries = Object.entries(files).map(async ([file, level]) => tarEntry(file, await grey(24, 16, level)))
    writeFileSync(join(folder, 'images', archive), Buffer.concat([...(await Promise.all(entries)), Buffer.alloc(1024)]))
  }
  const whole = { caption: 'a box', mask_rle: boxRle(24, 16, 1, 1, 4, 4) }
  const annotations = Object.entries(regions).map(([key, region]) => [key, { ...whole, ...region }])
  writeFileSync(join(folder, 'annotations.json'), JSON.stringify(Object.fromEntries(annotations)))
  return folder
}

/** Grey level of the picture of each record. */
async function levels(folder: string): Promise<number[]> {
  const source = await openSource(folder)
  try {
    const examples = await Promise.all(Array.from({ length: source.length }, (_, i) => source.get(i)))
    return examples.map(({ image }) => image.data[0]!)
  } finally {
    await source.close()
  }
}

test('a name in two archives is that of the first one, unless the region names its archive', async () => {
  const archives = { '00.tar': { 'a.jpg': 10 }, '01.tar': { 'a.jpg': 20, 'b.jpg': 30 } }
  const regions = {
    k0: { image: 'train/a.jpg' },
    k1: { image: 'train/a.jpg', tar_file: 'images/01.tar' },
    k2: { image: 'train/a.jpg', tar_file: '00.tar' },
    k3: { image: 'b.jpg' },
  }
  assert.deepEqual(await levels(await subset('two', archives, regions)), [10, 20, 10, 30])
})

test('a picture is found by its name, without leading zeros, by the key, or as the first frame of the key', async () => {
  const files = {
    '7.jpg': 10,
    'k1.jpg': 20,
    'k2.jpg': 30,
    'k3.0.jpg': 40,
    'k3.1.jpg': 50,
    'k4.0.jpg': 60,
    'k4.jpg': 70,
  }
  const regions = { k0: { image: '0007.jpg' }, k1: {}, k2: { image: 'lost.jpg' }, k3: {}, k4: {} }
  assert.deepEqual(await levels(await subset('names', { '00.tar': files }, regions)), [10, 20, 30, 40, 70])
})
