import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deflateSync } from 'node:zlib'
import fc from 'fast-check'
import sharp from 'sharp'
import { crc32, Mismatch, sha256 } from '../core/index.ts'
import { decodeImage, decodeImageFor, encodePng, imageInfo, type RgbImage } from './index.ts'

const width = 20
const height = 12
const picture: RgbImage = {
  width,
  height,
  data: Uint8Array.from({ length: width * height * 3 }, (_, i) => (i * 37 + Math.floor(i / 60) * 11) % 256),
}
const raw = (data: Uint8Array, channels: 1 | 2 | 3 | 4) => sharp(data, { raw: { width, height, channels } })
const red = (image: RgbImage, x: number, y: number) => image.data[(y * image.width + x) * 3]!

/** Where the pixel (x, y) of the turned image lies in the stored one, by the EXIF definition. */
const stored: Record<number, (x: number, y: number) => [number, number]> = {
  1: (x, y) => [x, y],
  2: (x, y) => [width - 1 - x, y],
  3: (x, y) => [width - 1 - x, height - 1 - y],
  4: (x, y) => [x, height - 1 - y],
  5: (x, y) => [y, x],
  6: (x, y) => [y, height - 1 - x],
  7: (x, y) => [width - 1 - y, height - 1 - x],
  8: (x, y) => [width - 1 - y, x],
}

test('all eight EXIF orientations are applied, in JPEG, PNG and WebP', async () => {
  for (const format of ['jpeg', 'png', 'webp'] as const) {
    const flat = await raw(picture.data, 3)[format]().toBuffer()
    const plain = await decodeImage(flat)
    for (let orientation = 1; orientation <= 8; orientation++) {
      const bytes = await raw(picture.data, 3).withMetadata({ orientation })[format]().toBuffer()
      const info = await imageInfo(bytes)
      assert.equal(info.orientation, orientation)
      assert.deepEqual([info.width, info.height], [width, height])
      const image = await decodeImage(bytes)
      assert.deepEqual([image.width, image.height], orientation < 5 ? [width, height] : [height, width])
      assert.deepEqual([image.width, image.height], [info.turnedWidth, info.turnedHeight])
      for (let y = 0; y < image.height; y++)
        for (let x = 0; x < image.width; x++) assert.equal(red(image, x, y), red(plain, ...stored[orientation]!(x, y)))
      assert.deepEqual(await decodeImage(bytes, 'x', { orient: false }), plain)
    }
  }
})

test('the mask decides whether a turned image is turned', async () => {
  const bytes = await raw(picture.data, 3).withMetadata({ orientation: 6 }).png().toBuffer()
  const turned = await decodeImageFor(bytes, { height: 20, width: 12 })
  assert.deepEqual(turned, await decodeImage(bytes))
  const kept = await decodeImageFor(bytes, { height: 12, width: 20 })
  assert.deepEqual(kept, picture)
  await assert.rejects(decodeImageFor(bytes, { height: 12, width: 21 }), (e) => {
    return e instanceof Mismatch && e.info.hint === 'size-mismatch'
  })
  const upside = await raw(picture.data, 3).withMetadata({ orientation: 3 }).png().toBuffer()
  assert.deepEqual(await decodeImageFor(upside, { height, width }), await decodeImage(upside))
})

test('grey is repeated, alpha dropped without blending, 16 bits give the high byte', async () => {
  const grey = picture.data.subarray(0, width * height)
  const threeTimes = Uint8Array.from({ length: width * height * 3 }, (_, i) => grey[Math.floor(i / 3)]!)
  const one = await decodeImage(await raw(grey, 1).toColourspace('b-w').png().toBuffer())
  assert.deepEqual(one.data, threeTimes)
  const deep = await decodeImage(await raw(grey, 1).toColourspace('grey16').png().toBuffer())
  assert.deepEqual(deep.data, threeTimes)
  const rgba = Uint8Array.from({ length: width * height * 4 }, (_, i) =>
    i % 4 === 3 ? (i * 7) % 256 : picture.data[Math.floor(i / 4) * 3 + (i % 4)]!,
  )
  assert.deepEqual(await decodeImage(await raw(rgba, 4).png().toBuffer()), picture)
})

test('a palette is looked up', async () => {
  const few = picture.data.map((v) => (v > 127 ? 255 : 0))
  const bytes = await raw(few, 3).png({ palette: true, dither: 0 }).toBuffer()
  assert.equal((await sharp(bytes).metadata()).isPalette, true)
  assert.deepEqual((await decodeImage(bytes)).data, few)
})

/** An 8 x 8 CMYK JPEG written by Pillow 9.4; the digest is that of the RGB bytes Pillow makes of it. */
const cmykJpeg =
  '/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAbEhQXFBEbFxYXHhwbIChCKyglJShROj0wQmBVZWRfVV1baniZgWpxkHNbXYW1hpCeo6utq2eA' +
  'vMm6pseZqKuk/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EABUAAQEAAAAAAAAAAAAAAAAAAAMF/8QAHRAAAgEEAwAAAAAAAAAAAAAAAAQh' +
  'BRETFTFCYv/aAA4EQwBNAFkASwAAPwB692H3fod97mS221hvJ//Z'
const cmykDigest = 'bfa9e53a6c6a58ce0c3bfa2633207c27b9b626344e225ef1ebac0e658b374183'

test("CMYK gives Pillow's pixels", async () => {
  const bytes = Buffer.from(cmykJpeg, 'base64')
  assert.equal((await sharp(bytes).metadata()).space, 'cmyk')
  const image = await decodeImage(bytes)
  assert.deepEqual([image.width, image.height], [8, 8])
  assert.equal(sha256(image.data), cmykDigest)
})

test('PNG keeps every pixel', async () => {
  const side = fc.integer({ min: 1, max: 20 })
  await fc.assert(
    fc.asyncProperty(side, side, fc.nat(255), async (w, h, seed) => {
      const image = {
        width: w,
        height: h,
        data: Uint8Array.from({ length: w * h * 3 }, (_, i) => (i * 91 + seed) % 256),
      }
      assert.deepEqual(await decodeImage(await encodePng(image)), image)
    }),
    { numRuns: 20 },
  )
})

test('truncated, empty and foreign files are a Mismatch that names the file', async () => {
  const noise = Uint8Array.from({ length: 64 * 64 * 3 }, (_, i) => (i * i * 31) % 251)
  const source = () => sharp(noise, { raw: { width: 64, height: 64, channels: 3 } })
  const files = [await source().png().toBuffer(), await source().jpeg().toBuffer(), await source().webp().toBuffer()]
  const named = (e: unknown) => e instanceof Mismatch && e.info.where === 'photo 3'
  for (const bytes of files)
    for (const part of [0, 1, 12, 40, bytes.length >> 1, bytes.length - 40])
      await assert.rejects(decodeImage(bytes.subarray(0, part), 'photo 3'), named)
  await assert.rejects(decodeImage(Buffer.from('not an image at all'), 'photo 3'), named)
  await assert.rejects(decodeImage(await source().gif().toBuffer(), 'photo 3'), named)
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>')
  await assert.rejects(imageInfo(svg, 'photo 3'), named)
  await assert.rejects(encodePng({ width: 2, height: 2, data: new Uint8Array(11) }), Mismatch)
})

test('a header of more than 100 megapixels is refused before a pixel is decoded', async () => {
  const chunk = (name: string, data: Uint8Array) => {
    const body = Buffer.concat([Buffer.from(name, 'latin1'), data])
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
    length.writeUInt32BE(data.length)
    sum.writeUInt32BE(crc32(body))
    return Buffer.concat([length, body, sum])
  }
  const header = Buffer.alloc(13)
  header.writeUInt32BE(30_000, 0)
  header.writeUInt32BE(30_000, 4)
  header[8] = 1
  const rows = deflateSync(new Uint8Array(1 << 22))
  const png = Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', header),
    chunk('IDAT', rows),
    chunk('IEND', new Uint8Array()),
  ])
  const before = process.memoryUsage().rss
  const refused = /big\.png: size: expected at most 100 megapixels, got 30000 x 30000/
  await assert.rejects(decodeImage(png, 'big.png'), refused)
  await assert.rejects(decodeImageFor(png, { height: 30_000, width: 30_000 }, 'big.png'), refused)
  assert.ok(process.memoryUsage().rss - before < 100e6)
})
