import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Mismatch, type RandomStream, stream, streamId } from '../core/index.ts'
import { aten, type Tensor, tensor, tidy } from '../tensor/index.ts'
import {
  decodeRle,
  encodeRle,
  type Mask,
  maskArea,
  maskBox,
  maskFromDense,
  maskFromRuns,
  maskHas,
  maskIntersection,
  maskIou,
  maskUnion,
  resizeMaskNearest,
  sourceOf,
  toDense,
} from './index.ts'

/** Bits with runs of random length, so that both noise and large regions occur. */
function randomBits(n: number, random: RandomStream): Uint8Array {
  const bits = new Uint8Array(n)
  const change = 2 ** -random.below(7)
  let value = random.below(2)
  for (let i = 0; i < n; i++) {
    if (random.uniform() < change) value = random.below(2)
    bits[i] = value
  }
  return bits
}

const bitsArbitrary = fc
  .record({ height: fc.integer({ min: 1, max: 12 }), width: fc.integer({ min: 1, max: 12 }) })
  .chain(({ height, width }) => {
    const bits = fc.uint8Array({ min: 0, max: 1, minLength: height * width, maxLength: height * width })
    return fc.record({ height: fc.constant(height), width: fc.constant(width), a: bits, b: bits })
  })

/** Independent of the run codec: column-major bits as a string of 0 and 1. */
function columnBits(mask: Mask): string {
  const dense = toDense(mask)
  let out = ''
  for (let x = 0; x < mask.width; x++) for (let y = 0; y < mask.height; y++) out += dense[y * mask.width + x]
  return out
}

test('10,000 random masks survive dense -> runs -> string -> runs -> dense', () => {
  const random = stream(streamId.test, 'masks')
  for (let i = 0; i < 10000; i++) {
    const height = 1 + random.below(24)
    const width = 1 + random.below(24)
    const bits = randomBits(height * width, random)
    const mask = maskFromDense(bits, height, width)
    const back = decodeRle(encodeRle(mask))
    assert.deepEqual(back, mask)
    assert.deepEqual(toDense(back), bits)
  }
})

test('any byte but 0 is inside, wherever the bytes begin', () => {
  const random = stream(streamId.test, 'bytes')
  for (let i = 0; i < 200; i++) {
    const [height, width, from] = [1 + random.below(9), random.pick([3, 4, 8, 12]), random.below(5)]
    const bits = randomBits(height * width, random)
    const bytes = new Uint8Array(from + bits.length)
    bytes.set(
      bits.map((bit) => bit * (1 + random.below(255))),
      from,
    )
    assert.deepEqual(toDense(maskFromDense(bytes.subarray(from), height, width)), bits)
  }
})

test('what was encoded is known, until somebody changes it', () => {
  const mask = maskFromDense(Uint8Array.of(0, 1, 1, 0), 2, 2)
  const rle = encodeRle(mask)
  assert.equal(sourceOf(rle), mask)
  assert.equal(sourceOf({ ...rle }), undefined)
  rle.counts = encodeRle(maskFromDense(Uint8Array.of(1, 1, 1, 0), 2, 2)).counts
  assert.equal(sourceOf(rle), undefined)
  assert.notEqual(encodeRle(mask).counts, rle.counts)
})

test('strings equal those that pycocotools writes', () => {
  const cases: [number, number, string, number[], string][] = [
    [3, 4, '000000000000', [12], '<'],
    [3, 4, '111111111111', [0, 12], '0<'],
    [3, 4, '011110000001', [1, 4, 6, 1], '146M'],
    [2, 3, '000001', [5, 1], '51'],
    [1, 1, '0', [1], '1'],
    [1, 1, '1', [0, 1], '01'],
    [5, 7, `0000001110011100111${'0'.repeat(16)}`, [6, 3, 2, 3, 2, 3, 16], '632000>'],
  ]
  for (const [height, width, bits, runs, counts] of cases) {
    const mask = decodeRle({ size: [height, width], counts })
    assert.deepEqual([...mask.counts], runs)
    assert.equal(columnBits(mask), bits)
    assert.equal(encodeRle(mask).counts, counts)
    assert.deepEqual(decodeRle({ size: [height, width], counts: runs }), mask)
    assert.deepEqual(decodeRle({ size: [height, width], counts: Buffer.from(counts, 'latin1') }), mask)
  }
})

test('runs of up to 2^28 pixels survive the string', () => {
  const mask = maskFromRuns([2 ** 28 - 7, 3, 4], 2 ** 14, 2 ** 14)
  assert.deepEqual(decodeRle(encodeRle(mask)), mask)
})

test('empty runs inside are merged, so equal masks have equal counts', () => {
  const plain = maskFromRuns([2, 4], 2, 3)
  assert.deepEqual(maskFromRuns([1, 0, 1, 3, 0, 1, 0], 2, 3), plain)
  assert.deepEqual(maskFromRuns([0, 0, 2, 4], 2, 3), plain)
})

test('run IoU equals dense IoU as doubles on 1,000 random pairs', () => {
  const random = stream(streamId.test, 'pairs')
  for (let i = 0; i < 1000; i++) {
    const height = 1 + random.below(20)
    const width = 1 + random.below(20)
    const a = randomBits(height * width, random)
    const b = randomBits(height * width, random)
    const runs = maskIou(maskFromDense(a, height, width), maskFromDense(b, height, width))
    const count = (rule: (inA: boolean, inB: boolean) => boolean) =>
      a.filter((bit, k) => rule(bit > 0, b[k]! > 0)).length
    const either = count((inA, inB) => inA || inB)
    assert.equal(runs, either === 0 ? 0 : count((inA, inB) => inA && inB) / either)
  }
})

test('IoU is 1 on itself, 0 on nothing shared, and the given value when both are empty', () => {
  const mask = (...bits: number[]) => maskFromDense(Uint8Array.from(bits), 2, 2)
  assert.equal(maskIou(mask(1, 0, 0, 1), mask(1, 0, 0, 1)), 1)
  assert.equal(maskIou(mask(1, 0, 0, 0), mask(0, 1, 1, 1)), 0)
  assert.equal(maskIou(mask(1, 1, 0, 0), mask(1, 0, 1, 0)), 1 / 3)
  assert.equal(maskIou(mask(0, 0, 0, 0), mask(0, 0, 0, 0)), 0)
  assert.equal(maskIou(mask(0, 0, 0, 0), mask(0, 0, 0, 0), 1), 1)
  assert.equal(maskIou(mask(0, 0, 0, 0), mask(1, 0, 0, 0), 1), 0)
})

test('union, intersection, area and box agree with the bits', () => {
  fc.assert(
    fc.property(bitsArbitrary, ({ height, width, a, b }) => {
      const [ma, mb] = [maskFromDense(a, height, width), maskFromDense(b, height, width)]
      const or = a.map((v, i) => v | b[i]!)
      const and = a.map((v, i) => v & b[i]!)
      assert.deepEqual(maskUnion(ma, mb), maskFromDense(or, height, width))
      assert.deepEqual(maskIntersection(ma, mb), maskFromDense(and, height, width))
      assert.deepEqual(
        a.map((_, i) => Number(maskHas(ma, [i % width, Math.floor(i / width)]))),
        a,
      )
      assert.equal(
        maskArea(ma),
        a.reduce((s, v) => s + v, 0),
      )
      const inside = [...a.keys()].filter((i) => a[i])
      const xs = inside.map((i) => i % width)
      const ys = inside.map((i) => Math.floor(i / width))
      const [left, top] = [Math.min(...xs), Math.min(...ys)]
      const box = inside.length ? [left, top, Math.max(...xs) - left + 1, Math.max(...ys) - top + 1] : [0, 0, 0, 0]
      assert.deepEqual(maskBox(ma), box)
    }),
  )
})

test('nearest resize takes the pixel torch takes', () => {
  // torch 1.13: F.interpolate(arange(n), size=m, mode='nearest') for three (n, m)
  const picks = (n: number, m: number) =>
    Array.from({ length: n }, (_, hot) => {
      const bits = new Uint8Array(n)
      bits[hot] = 1
      return [...toDense(resizeMaskNearest(maskFromDense(bits, 1, n), 1, m))]
    })
  const index = (n: number, m: number) => Array.from({ length: m }, (_, j) => picks(n, m).findIndex((p) => p[j] === 1))
  assert.deepEqual(index(7, 3), [0, 2, 4])
  assert.deepEqual(index(3, 7), [0, 0, 0, 1, 1, 2, 2])
  assert.deepEqual(index(10, 4), [0, 2, 5, 7])
})

test("nearest resize equals torch's on both sides, also where rounding to float32 decides", () => {
  const random = stream(3, 'nearest resize')
  for (const [h, w, height, width] of [
    [26, 9, 44, 5],
    [9, 26, 5, 44],
    [28, 30, 46, 52],
    [5, 7, 1, 1],
  ] as const) {
    // biome-ignore format: a table
    const bits = Uint8Array.from({ length: h * w }, () => random.below(2))
    const resized = tidy(() => {
      const image = tensor(Float32Array.from(bits), [1, 1, h, w])
      return (aten('upsample_nearest2d', image, [height, width]) as Tensor).numbers()
    })
    assert.deepEqual([...toDense(resizeMaskNearest(maskFromDense(bits, h, w), height, width))], resized)
  }
})

test('a defective RLE is a Mismatch that names its defect', () => {
  const size = [3, 4]
  const cases: [unknown, string][] = [
    [{ size, counts: '=' }, 'rle-overflow'],
    [{ size, counts: ';' }, 'rle-short'],
    [{ size, counts: '' }, 'rle-empty'],
    [{ size, counts: [] }, 'rle-empty'],
    [{ size, counts: 'P' }, 'rle-truncated'],
    [{ size, counts: '1p' }, 'rle-char'],
    [{ size, counts: '1é' }, 'rle-char'],
    [{ size, counts: 'ooooooooo1' }, 'rle-overflow'],
    [{ size, counts: 'M?' }, 'rle-overflow'],
    [{ size, counts: [-1, 13] }, 'rle-overflow'],
    [{ size, counts: [1.5, 10.5] }, 'rle-overflow'],
    [{ size, counts: ['1', 11] }, 'rle-overflow'],
    [{ size, counts: null }, 'rle-type'],
    [{ size: [3], counts: '<' }, 'rle-type'],
    [{ counts: '<' }, 'rle-type'],
    [null, 'rle-type'],
    [{ size: [0, 4], counts: '0' }, 'zero-size'],
    [{ size: [3, '4'], counts: '<' }, 'zero-size'],
  ]
  for (const [rle, hint] of cases) {
    assert.throws(
      () => decodeRle(rle as Parameters<typeof decodeRle>[0], 'row 7'),
      (e) => e instanceof Mismatch && e.info.hint === hint && e.info.where === 'row 7',
      JSON.stringify(rle),
    )
  }
})

test('any string decodes to a mask of the right size or is a Mismatch', () => {
  const anyText = fc.oneof(
    fc.string(),
    fc.string({ unit: fc.integer({ min: 48, max: 111 }).map((c) => String.fromCharCode(c)) }),
  )
  fc.assert(
    fc.property(anyText, fc.integer({ min: 1, max: 9 }), (counts, n) => {
      try {
        const mask = decodeRle({ size: [n, n], counts })
        assert.equal(
          mask.counts.reduce((s, v) => s + v, 0),
          n * n,
        )
      } catch (error) {
        assert.ok(error instanceof Mismatch)
      }
    }),
    { numRuns: 500 },
  )
})

test('masks of two sizes, wrong lengths and sizes of zero are a Mismatch', () => {
  const a = maskFromDense(new Uint8Array(6), 2, 3)
  const b = maskFromDense(new Uint8Array(6), 3, 2)
  assert.throws(() => maskIou(a, b), Mismatch)
  assert.throws(() => maskUnion(a, b), Mismatch)
  assert.throws(() => maskIntersection(a, b), Mismatch)
  assert.throws(() => maskFromDense(new Uint8Array(5), 2, 3), Mismatch)
  assert.throws(() => maskFromDense(new Uint8Array(0), 0, 3), Mismatch)
  assert.throws(() => resizeMaskNearest(a, 0, 4), Mismatch)
})
