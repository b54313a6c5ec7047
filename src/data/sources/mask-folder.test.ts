import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { before, test } from 'node:test'
import sharp from 'sharp'
import { grey, testFolder } from '../../../tests/support/data.ts'
import { maskArea, maskBox } from '../../mask/index.ts'
import { inspectSource, renderInspection } from '../inspect.ts'
import { openLoader } from '../loader.ts'
import { openSource } from './open.ts'

const folder = join(testFolder(), 'mine')
const [width, height] = [40, 30]

/** Object n is a box of n + 2 columns and 4 rows. */
async function labelPng(objects: readonly number[]): Promise<Buffer> {
  const data = new Uint8Array(width * height)
  objects.forEach((n, k) => {
    for (let y = 5 * k; y < 5 * k + 4; y++) data.fill(n, y * width + 3, y * width + 3 + (n % 20) + 2)
  })
  return await sharp(data, { raw: { width, height, channels: 1 } })
    .toColourspace('b-w')
    .png()
    .toBuffer()
}

before(async () => {
  mkdirSync(join(folder, 'images'), { recursive: true })
  mkdirSync(join(folder, 'masks'))
  const put = async (name: string, objects: readonly number[] | Uint8Array | null) => {
    writeFileSync(join(folder, 'images', `${name}.png`), await grey(width, height))
    if (objects)
      writeFileSync(
        join(folder, 'masks', `${name}.png`),
        objects instanceof Uint8Array ? objects : await labelPng(objects),
      )
  }
  await put('a', [1, 2])
  await put('b', [255])
  await put('c', [3, 255])
  await put('d', [])
  await put('e', null)
  await put('f', Buffer.from('no png'))
})

async function summary() {
  const source = await openSource(folder)
  const records = Array.from({ length: source.length }, (_, i) => i)
  const lines = await Promise.all(
    records.map((i) =>
      source.get(i).then(
        ({ id, caption, mask }) => `${id} "${caption}" ${maskArea(mask)} [${maskBox(mask)}]`,
        (error) => `${source.id(i)} ${error.reason}`,
      ),
    ),
  )
  return { source, lines }
}

test('images + masks: a record for each object, without captions.tsv an empty caption', async () => {
  const { source, lines } = await summary()
  assert.equal(source.format, 'images and masks, no captions')
  assert.deepEqual(lines, [
    'a/1 "" 12 [3,0,3,4]',
    'a/2 "" 16 [3,5,4,4]',
    'b "" 68 [3,0,17,4]',
    'c "" 20 [3,0,5,4]',
    'f mask-unreadable',
  ])
  assert.deepEqual(source.leftOut, {
    'images without a mask': 1,
    'masks without an object': 1,
    'value 255 next to other objects (border of Pascal VOC)': 1,
  })
})

test('inspect reads records without captions; a task that needs captions names the file to write', async () => {
  const source = await openSource(folder)
  const text = renderInspection(await inspectSource(source))
  assert.match(text, /records: 5\n/)
  assert.match(text, /left out: 1, images without a mask/)
  assert.match(text, /unusable: 1 of 5/)
  assert.throws(
    () => openLoader(source, { workers: 0 }),
    /mine: captions: expected one for each object: this task reads them, got none.*captions\.tsv/s,
  )
  const rules = { usesNoCaption: true }
  const loader = openLoader(source, { workers: 0, shuffle: false }, undefined, null, rules)
  assert.equal((await loader.next()).id, 'a/1')
  await loader.close()
})

test('captions.tsv names image, object and caption; an image with one object needs no number', async () => {
  const file = join(folder, 'captions.tsv')
  writeFileSync(file, '\ufeffa.png\t2\tthe cup on the left\r\nb\tthe vase\nc\t3\t  \na\t1\ta plate\n\n')
  const { source, lines } = await summary()
  assert.equal(source.format, 'images and masks, captions.tsv')
  assert.deepEqual(lines.slice(0, 4), [
    'a/1 "a plate" 12 [3,0,3,4]',
    'a/2 "the cup on the left" 16 [3,5,4,4]',
    'b "the vase" 68 [3,0,17,4]',
    'c empty-caption',
  ])
  const loader = openLoader(source, { workers: 0, shuffle: false })
  assert.equal((await loader.next()).caption, 'a plate')
  await loader.close()
  writeFileSync(file, 'a.png the cup\n')
  await assert.rejects(
    openSource(folder),
    /captions\.tsv: line 1: expected IMAGE<tab>OBJECT<tab>CAPTION, got a\.png the cup/,
  )
})
