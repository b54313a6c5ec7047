import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import sharp from 'sharp'
import { decodeImage, normaliseChw, pixelValues, regionGrid, resize, samInput, tiles } from './index.ts'

const golden = new URL('../../tests/fixtures/golden/', import.meta.url)
const file = (path: string) => readFileSync(new URL(path, golden))

/** name -> raw bytes and shape: 8 bytes of header length, JSON header, data. */
function readTensors(path: string): Map<string, { shape: number[]; bytes: Buffer }> {
  const bytes = file(path)
  const length = Number(bytes.readBigUInt64LE(0))
  const header: Record<string, { shape: number[]; data_offsets: [number, number] }> = JSON.parse(
    bytes.toString('utf8', 8, 8 + length),
  )
  const data = bytes.subarray(8 + length)
  return new Map(
    Object.entries(header)
      .filter(([name]) => name !== '__metadata__')
      .map(([name, t]) => [name, { shape: t.shape, bytes: data.subarray(...t.data_offsets) }]),
  )
}

const floats = (bytes: Buffer) => new Float32Array(new Uint8Array(bytes).buffer)
const misc = readTensors('misc/golden.safetensors')
const sa2va = readTensors('sa2va-tiny/golden.safetensors')

test('every stored Pillow resize is reproduced bit for bit', async () => {
  const image = await decodeImage(file('misc/image.png'))
  const names = [...misc.keys()].filter((name) => name.startsWith('resize.'))
  assert.equal(names.length, 13)
  for (const name of names) {
    const [, filter, size] = name.split('.') as [string, 'bicubic' | 'bilinear', string]
    const [width, height] = size.split('x').map(Number) as [number, number]
    const ours = resize(image, width, height, filter)
    const { shape, bytes } = misc.get(name)!
    const every = height / shape[0]! // 1024 x 1024 is stored as every 8th pixel
    const picked: number[] = []
    for (let y = 0; y < height; y += every)
      for (let x = 0; x < width; x += every)
        picked.push(...ours.data.subarray((y * width + x) * 3, (y * width + x) * 3 + 3))
    assert.ok(Buffer.from(picked).equals(bytes), name)
  }
})

test('a JPEG decodes to the pixels Pillow sees', async () => {
  const image = await decodeImage(file('misc/image.jpg'))
  const { shape, bytes } = misc.get('jpeg.decoded')!
  assert.deepEqual([image.height, image.width, 3], shape)
  assert.ok(Buffer.from(image.data).equals(bytes))
})

test('pixel values of the miniature Sa2VA equal the reference in every bit', async () => {
  const image = await decodeImage(file('sa2va-tiny/image.png'))
  const ours = pixelValues(image, { tileSize: 112 })
  for (const name of ['cap.pixel_values', 'seg.pixel_values']) {
    const { shape, bytes } = sa2va.get(name)!
    assert.deepEqual([ours.tiles, 3, ours.size, ours.size], shape)
    assert.deepEqual(ours.data, floats(bytes))
  }
  const apart = tiles(image, { tileSize: 112 }).map((tile) => normaliseChw(tile))
  apart.forEach((tile, t) => {
    assert.deepEqual(tile, ours.data.subarray(t * tile.length, (t + 1) * tile.length))
  })
})

test('the SAM2 input equals the reference in every bit', async () => {
  const image = await decodeImage(file('sa2va-tiny/image.png'))
  assert.deepEqual(samInput(image, 128), floats(sa2va.get('seg.g_pixel_values')!.bytes))
})

test('region cells equal the reference', async () => {
  const { data, info } = await sharp(file('sa2va-tiny/mask.png'))
    .toColourspace('b-w')
    .raw()
    .toBuffer({ resolveWithObject: true })
  const runs: number[] = []
  let inside = false
  let run = 0
  for (let q = 0; q < data.length; q++) {
    const bit = data[(q % info.height) * info.width + Math.floor(q / info.height)]! > 0
    if (bit !== inside) {
      runs.push(run)
      run = 0
      inside = bit
    }
    run++
  }
  const mask = { height: info.height, width: info.width, counts: Uint32Array.from([...runs, run]) }
  const region = regionGrid(mask, 8)
  const reference = new Uint8Array(sa2va.get('cap.prompt_masks')!.bytes)
  assert.deepEqual(region.cells, reference)
  assert.equal(
    region.count,
    reference.reduce((n, c) => n + c, 0),
  )
  assert.equal(region.fallback, false)
})
