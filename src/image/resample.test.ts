import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Mismatch, stream, streamId } from '../core/index.ts'
import { type RgbImage, resize } from './index.ts'
import { axisOf } from './resample.ts'

function grey(rows: number[][]): RgbImage {
  const data = Uint8Array.from(rows.flat().flatMap((v) => [v, v, v]))
  return { width: rows[0]!.length, height: rows.length, data }
}

const rowsOf = (image: RgbImage) =>
  Array.from({ length: image.height }, (_, y) =>
    Array.from({ length: image.width }, (_, x) => image.data[(y * image.width + x) * 3]!),
  )

function noise(width: number, height: number, key: string): RgbImage {
  const random = stream(streamId.test, key)
  return { width, height, data: Uint8Array.from({ length: width * height * 3 }, () => random.below(256)) }
}

const side = fc.integer({ min: 1, max: 40 })
const filter = fc.constantFrom('bicubic' as const, 'bilinear' as const)

test("Pillow's numbers for a ramp of 3 x 4 pixels", () => {
  const ramp = grey([
    [0, 21, 42],
    [63, 84, 105],
    [126, 147, 168],
    [189, 210, 231],
  ])
  const expected = [
    [4, 32],
    [48, 76],
    [102, 130],
    [155, 183],
    [199, 227],
  ]
  assert.deepEqual(rowsOf(resize(ramp, 2, 5, 'bicubic')), expected)
  const large = rowsOf(resize(ramp, 7, 6, 'bicubic'))
  assert.deepEqual(large[0], [0, 0, 6, 17, 28, 36, 40])
  assert.deepEqual(large[5], [191, 195, 203, 214, 225, 233, 237])
})

test('an image of one colour keeps it at every size', () => {
  fc.assert(
    fc.property(side, side, side, side, fc.nat(255), filter, (w, h, w2, h2, v, name) => {
      const flat = { width: w, height: h, data: new Uint8Array(w * h * 3).fill(v) }
      assert.ok(resize(flat, w2, h2, name).data.every((sample) => sample === v))
    }),
  )
})

test('resizing mirrors with the image', () => {
  const mirror = (image: RgbImage): RgbImage => {
    const data = new Uint8Array(image.data.length)
    for (let p = 0; p < image.width * image.height; p++) {
      const x = p % image.width
      const to = p - x + image.width - 1 - x
      data.set(image.data.subarray(p * 3, p * 3 + 3), to * 3)
    }
    return { ...image, data }
  }
  // whole scales, so that both directions compute the same doubles
  for (const width of [4, 8, 32, 64]) {
    const image = noise(16, 9, 'mirror')
    assert.deepEqual(resize(mirror(image), width, 9, 'bicubic'), mirror(resize(image, width, 9, 'bicubic')))
  }
})

test("torchvision's weights keep as many bits as fit 16: 14 for a largest weight above 1, 16 for a third", () => {
  const least = (from: number, to: number) =>
    Math.min(...[...axisOf(from, to, 'bicubic-16').weights].filter((w) => w !== 0).map((w) => w & -w))
  assert.equal(least(5, 15), 2 ** (22 - 14), 'outputs at the border')
  assert.equal(least(15, 5), 2 ** (22 - 16), 'each output is the mean of several inputs')
})

test('the three channels do not mix', () => {
  fc.assert(
    fc.property(side, side, side, side, filter, (w, h, w2, h2, name) => {
      const image = noise(w, h, 'channels')
      const out = resize(image, w2, h2, name)
      for (let c = 0; c < 3; c++) {
        const one = { ...image, data: image.data.map((v, i) => (i % 3 === c ? v : 0)) }
        const alone = resize(one, w2, h2, name).data
        assert.ok(alone.every((v, i) => v === (i % 3 === c ? out.data[i] : 0)))
      }
    }),
    { numRuns: 40 },
  )
})

test('the same size is a copy, not the same buffer', () => {
  const image = noise(5, 7, 'copy')
  const out = resize(image, 5, 7, 'bicubic')
  assert.deepEqual(out, image)
  assert.notEqual(out.data, image.data)
})

test('a size of zero, a wrong length and an unknown filter are a Mismatch', () => {
  const image = noise(5, 7, 'bad')
  assert.throws(() => resize(image, 0, 7, 'bicubic'), Mismatch)
  assert.throws(() => resize(image, 5, 1.5, 'bicubic'), Mismatch)
  assert.throws(() => resize({ ...image, width: 6 }, 5, 7, 'bicubic'), Mismatch)
  assert.throws(() => resize(image, 5, 8, 'lanczos' as 'bicubic'), Mismatch)
})
