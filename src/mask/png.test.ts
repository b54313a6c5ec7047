import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { deflateSync } from 'node:zlib'
import fc from 'fast-check'
import sharp from 'sharp'
import { crc32, Mismatch } from '../core/index.ts'
import { labelsFromPng, maskFromDense, maskFromPng, maskToPng, toDense } from './index.ts'

const golden = new URL('../../tests/fixtures/golden/sa2va-tiny/mask.png', import.meta.url)
const bits = Uint8Array.from({ length: 23 * 37 }, (_, i) => (Math.sin(i * 0.37) + Math.cos(i * 0.011) > 0.6 ? 1 : 0))
const expected = maskFromDense(bits, 23, 37)
const samples = (channels: number, value: (i: number, c: number) => number) =>
  sharp(
    Uint8Array.from({ length: bits.length * channels }, (_, k) => value(Math.floor(k / channels), k % channels)),
    { raw: { width: 37, height: 23, channels: channels as 1 | 2 | 3 | 4 } },
  )

/** A PNG with the chunks given. */
function pngOf(...chunks: [string, Uint8Array][]): Uint8Array {
  const parts = chunks.map(([name, data]) => {
    const head = Buffer.alloc(8)
    head.writeUInt32BE(data.length)
    head.write(name, 4, 'latin1')
    const sum = Buffer.alloc(4)
    sum.writeUInt32BE(crc32(Buffer.concat([head.subarray(4), data])))
    return Buffer.concat([head, data, sum])
  })
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), ...parts])
}

function header(width: number, height: number, depth: number, type: number): Buffer {
  const data = Buffer.alloc(13)
  data.writeUInt32BE(width, 0)
  data.writeUInt32BE(height, 4)
  data[8] = depth
  data[9] = type
  return data
}

test('a mask survives PNG, and libpng reads the same pixels', async () => {
  const png = await maskToPng(expected)
  assert.deepEqual(await maskFromPng(png), expected)
  const { data, info } = await sharp(png).toColourspace('b-w').raw().toBuffer({ resolveWithObject: true })
  assert.deepEqual([info.width, info.height, info.channels], [37, 23, 1])
  assert.deepEqual(
    Uint8Array.from(data, (v) => (v > 0 ? 1 : 0)),
    bits,
  )
})

test('the golden mask has the pixels sharp sees', async () => {
  const bytes = readFileSync(golden)
  const mask = await maskFromPng(bytes)
  assert.deepEqual([mask.height, mask.width], [170, 250])
  const data = await sharp(bytes).toColourspace('b-w').raw().toBuffer()
  assert.deepEqual(
    toDense(mask),
    Uint8Array.from(data, (v) => (v > 0 ? 1 : 0)),
  )
})

test('grey, RGB, RGBA, 16-bit, interlaced and adaptively filtered files give one mask', async () => {
  const files = [
    await samples(1, (i) => bits[i]!)
      .toColourspace('b-w')
      .png()
      .toBuffer(),
    await samples(1, (i) => bits[i]! * 9)
      .toColourspace('b-w')
      .png({ progressive: true })
      .toBuffer(),
    await samples(3, (i, c) => bits[i]! * (c === 2 ? 1 : 0))
      .png({ adaptiveFiltering: true })
      .toBuffer(),
    await samples(3, (i, c) => bits[i]! * 80 * c)
      .png({ progressive: true, adaptiveFiltering: true })
      .toBuffer(),
    await samples(4, (i, c) => (c === 3 ? 255 : bits[i]! * 200))
      .png()
      .toBuffer(),
    await samples(1, (i) => bits[i]! * 255)
      .toColourspace('grey16')
      .png()
      .toBuffer(),
  ]
  for (const file of files) assert.deepEqual(await maskFromPng(file), expected)
})

test('the alpha of a grey picture decides nothing, for masks and for labels', async () => {
  const file = await samples(2, (i, c) => (c === 1 ? 255 : bits[i]! * 200))
    .toColourspace('b-w')
    .png()
    .toBuffer()
  assert.deepEqual([file[24], file[25]], [8, 4], 'grey and alpha of 8 bits')
  assert.deepEqual(await maskFromPng(file), expected)
  const { numbers } = await labelsFromPng(file)
  assert.deepEqual(
    [...numbers],
    Array.from(bits, (on) => on * 200),
  )
})

test('of two neighbours that predict alike, the filter of Paeth takes the upper one, as libpng does', async () => {
  const rows = Uint8Array.of(0, 10, 14, 4, 254, 242) // the last pixel: left 8, above 14, above left 10
  const png = pngOf(['IHDR', header(2, 2, 8, 0)], ['IDAT', deflateSync(rows)], ['IEND', new Uint8Array(0)])
  const seen = await sharp(png).toColourspace('b-w').raw().toBuffer()
  assert.deepEqual([...seen], [10, 14, 8, 0])
  assert.deepEqual([...(await labelsFromPng(png)).numbers], [...seen])
})

test('files of 1, 2 and 4 bits a pixel give one mask, grey or by palette', async () => {
  const [height, width] = [23, 37]
  for (const depth of [1, 2, 4])
    for (const type of [0, 3]) {
      const rowBytes = 1 + Math.ceil((width * depth) / 8)
      const rows = new Uint8Array(height * rowBytes)
      bits.forEach((on, i) => {
        const [x, y] = [i % width, Math.floor(i / width)]
        const value = on * (1 + (i % (2 ** depth - 1)))
        rows[y * rowBytes + 1 + Math.floor((x * depth) / 8)]! |= value << (8 - depth - ((x * depth) % 8))
      })
      const palette: [string, Uint8Array][] = type === 3 ? [['PLTE', new Uint8Array(3 * 2 ** depth)]] : []
      const end: [string, Uint8Array][] = [['IDAT', deflateSync(rows)], ['IEND', new Uint8Array(0)]] // biome-ignore format: chunks
      const png = pngOf(['IHDR', header(width, height, depth, type)], ...palette, ...end)
      assert.deepEqual(await maskFromPng(png), expected, `${depth} bits, type ${type}`)
    }
})

test('a palette is read by index, a 16-bit sample in full', async () => {
  const palette = Uint8Array.from([255, 255, 255, 0, 0, 0]) // index 0 white, 1 black
  const rows = deflateSync(Uint8Array.from([0, 0b01000000])) // one row, indices 0 1 0
  const indexed = pngOf(['IHDR', header(3, 1, 1, 3)], ['PLTE', palette], ['IDAT', rows], ['IEND', new Uint8Array()])
  assert.deepEqual([...toDense(await maskFromPng(indexed))], [0, 1, 0])
  const low = deflateSync(Uint8Array.from([0, 0, 0, 0, 1])) // two samples: 0 and 1 of 65535
  const deep = pngOf(['IHDR', header(2, 1, 16, 0)], ['IDAT', low], ['IEND', new Uint8Array()])
  assert.deepEqual([...toDense(await maskFromPng(deep))], [0, 1])
})

test('a truncated or wrong file is a Mismatch at every length', async () => {
  const png = await maskToPng(expected)
  for (let n = 0; n < png.length; n++) await assert.rejects(maskFromPng(png.subarray(0, n)), Mismatch)
  await assert.rejects(maskFromPng(Buffer.from('GIF89a..........')), Mismatch)
  const end: [string, Uint8Array] = ['IEND', new Uint8Array()]
  const data: [string, Uint8Array] = ['IDAT', deflateSync(new Uint8Array(4))]
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(0, 1, 8, 0)], data, end)), Mismatch)
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(9, 9, 8, 0)], data, end)), Mismatch)
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(3, 1, 7, 0)], data, end)), Mismatch)
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(3, 1, 8, 0)], end)), Mismatch)
  const bomb: [string, Uint8Array] = ['IDAT', deflateSync(new Uint8Array(1 << 20))]
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(3, 1, 8, 0)], bomb, end)), Mismatch)
})

test('a header alone cannot ask for more than 100 megapixels or 400 MB', async () => {
  const data: [string, Uint8Array] = ['IDAT', deflateSync(new Uint8Array(1 << 20))]
  const end: [string, Uint8Array] = ['IEND', new Uint8Array()]
  const before = process.memoryUsage().rss
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(16383, 16383, 16, 6)], data, end)), /1 to 100000000 pixels/)
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(10001, 10000, 1, 0)], data, end)), /1 to 100000000 pixels/)
  await assert.rejects(maskFromPng(pngOf(['IHDR', header(10000, 10000, 16, 6)], data, end)), /400000000 bytes/)
  assert.ok(process.memoryUsage().rss - before < 100e6)
})

test('a chunk with another check sum is refused by its name', async () => {
  const png = Buffer.from(await maskToPng(expected))
  const names = { IHDR: 16, IDAT: png.indexOf('IDAT') + 6, IEND: png.length - 1 }
  for (const [name, at] of Object.entries(names)) {
    const changed = Buffer.from(png)
    changed[at]! ^= 1
    await assert.rejects(maskFromPng(changed), new RegExp(`${name} chunk with its check sum`))
  }
})

test('a file with any byte changed is a mask or a Mismatch', async () => {
  const png = await maskToPng(expected)
  await fc.assert(
    fc.asyncProperty(fc.nat(png.length - 1), fc.nat(255), async (at, value) => {
      const changed = Uint8Array.from(png)
      changed[at] = value
      await maskFromPng(changed).catch((error) => assert.ok(error instanceof Mismatch))
    }),
    { numRuns: 200 },
  )
})

test('labels are the palette index or the grey level: 1 to 16 bits, interlaced, grey stored as colour', async () => {
  const numbers = Uint16Array.from(bits, (inside, i) => (inside ? 1 + (i % 3) : 0))
  const packed = (depth: number) => {
    const rowBytes = 1 + Math.ceil((37 * depth) / 8)
    const rows = new Uint8Array(23 * rowBytes)
    numbers.forEach((n, i) => {
      const bit = (i % 37) * depth
      rows[Math.floor(i / 37) * rowBytes + 1 + (bit >> 3)]! |= n << (8 - depth - (bit & 7))
    })
    return deflateSync(rows)
  }
  const palette = new Uint8Array(12).fill(0) // all entries black: the index counts, not its colour
  const wide = (n: number) => n * 300
  const rows16 = Buffer.alloc(23 * (1 + 2 * 37))
  numbers.forEach((n, i) => {
    rows16.writeUInt16BE(wide(n), Math.floor(i / 37) * 75 + 1 + 2 * (i % 37))
  })
  const end: [string, Uint8Array] = ['IEND', new Uint8Array(0)]
  const files: [Uint8Array, (n: number) => number][] = [
    [pngOf(['IHDR', header(37, 23, 2, 3)], ['PLTE', palette], ['IDAT', packed(2)], end), (n) => n],
    [pngOf(['IHDR', header(37, 23, 4, 0)], ['IDAT', packed(4)], end), (n) => n],
    [pngOf(['IHDR', header(37, 23, 16, 0)], ['IDAT', deflateSync(rows16)], end), wide],
    [
      await samples(1, (i) => numbers[i]!)
        .toColourspace('b-w')
        .png({ progressive: true })
        .toBuffer(),
      (n) => n,
    ],
    [
      await samples(3, (i) => numbers[i]!)
        .png()
        .toBuffer(),
      (n) => n,
    ],
  ]
  for (const [k, [file, value]] of files.entries())
    assert.deepEqual(await labelsFromPng(file), { height: 23, width: 37, numbers: numbers.map(value) }, `file ${k}`)
  const coloured = await samples(3, (i, c) => numbers[i]! * c)
    .png()
    .toBuffer()
  await assert.rejects(labelsFromPng(coloured), /expected a PNG of palette indices or grey levels, got one of colours/)
})
