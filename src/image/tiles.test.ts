import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { roundingBound } from '../../tests/support/rounding.ts'
import { Mismatch, stream, streamId } from '../core/index.ts'
import { aten, type Tensor, tensor, tidy } from '../tensor/index.ts'
import {
  bfloat16,
  imagenetMean,
  imagenetStd,
  normaliseChw,
  overlay,
  pixelValues,
  regionGrid,
  resize,
  samInput,
  tiles,
} from './index.ts'
import { tileCount, tileGrid } from './tiles.ts'

function noise(width: number, height: number) {
  const random = stream(streamId.test, 'tiles', width, height)
  return { width, height, data: Uint8Array.from({ length: width * height * 3 }, () => random.below(256)) }
}

test('grids equal the reference for the usual image sizes', () => {
  const table: [number, number, number, number, number][] = [
    [448, 448, 1, 1, 1],
    [300, 300, 1, 1, 1],
    [612, 612, 1, 1, 1],
    [640, 640, 2, 2, 5],
    [700, 700, 2, 2, 5],
    [1024, 1024, 3, 3, 10],
    [640, 480, 4, 3, 13],
    [500, 375, 4, 3, 13],
    [480, 640, 3, 4, 13],
    [640, 427, 3, 2, 7],
    [640, 426, 3, 2, 7],
    [333, 500, 2, 3, 7],
    [1920, 1080, 4, 2, 9],
    [1280, 720, 4, 2, 9],
    [100, 400, 1, 4, 5],
    [1000, 60, 12, 1, 13],
  ]
  for (const [width, height, columns, rows, count] of table) {
    const grid = tileGrid(width, height)
    assert.deepEqual(grid, { columns, rows }, `${width} x ${height}`)
    assert.equal(tileCount(grid), count)
  }
})

test('a grid has between minTiles and maxTiles cells and no candidate is nearer in shape', () => {
  const side = fc.integer({ min: 1, max: 4000 })
  fc.assert(
    fc.property(
      side,
      side,
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 4, max: 20 }),
      (w, h, minTiles, maxTiles) => {
        const grid = tileGrid(w, h, { minTiles, maxTiles })
        const cells = grid.columns * grid.rows
        assert.ok(cells >= minTiles && cells <= maxTiles)
        const off = Math.abs(w / h - grid.columns / grid.rows)
        for (let i = 1; i <= maxTiles; i++)
          for (let j = 1; i * j <= maxTiles; j++) if (i * j >= minTiles) assert.ok(Math.abs(w / h - i / j) >= off)
      },
    ),
  )
})

test('tiles cut the stretched image row by row; the thumbnail is the whole image', () => {
  const image = noise(60, 41)
  const cut = tiles(image, { tileSize: 16 })
  const grid = tileGrid(60, 41, { tileSize: 16 })
  assert.deepEqual(grid, { columns: 3, rows: 2 })
  assert.equal(cut.length, 7)
  const sheet = resize(image, 48, 32, 'bicubic')
  cut.slice(0, 6).forEach((tile, t) => {
    for (let y = 0; y < 16; y++)
      for (let x = 0; x < 48; x++) {
        const at = ((Math.floor(t / 3) * 16 + y) * 48 + (t % 3) * 16) * 3 + x
        assert.equal(tile.data[y * 48 + x], sheet.data[at])
      }
  })
  assert.deepEqual(cut[6], resize(image, 16, 16, 'bicubic'))
  assert.equal(tiles(image, { tileSize: 16, thumbnail: false }).length, 6)
  assert.equal(pixelValues(image, { tileSize: 16, thumbnail: false }).tiles, 6)
  assert.equal(tiles(noise(9, 9), { tileSize: 16 }).length, 1)
})

test('normalised values lie where the formula puts them', () => {
  const image = noise(11, 6)
  const out = normaliseChw(image)
  for (let i = 0; i < 66; i++)
    for (let c = 0; c < 3; c++) {
      const exact = (image.data[i * 3 + c]! / 255 - imagenetMean[c]!) / imagenetStd[c]!
      assert.ok(Math.abs(out[c * 66 + i]! - exact) < roundingBound(3, 3)) // scaled, shifted, divided: up to 3
    }
})

test('bfloat16 rounds to nearest, ties to even', () => {
  const cases: [number, number][] = [
    [1, 1],
    [0.485, 0.484375],
    [0.229, 0.228515625],
    [1 + 2 ** -8, 1],
    [1 + 3 * 2 ** -8, 1 + 2 ** -6],
    [-(1 + 2 ** -8), -1],
    [0, 0],
  ]
  for (const [value, rounded] of cases) assert.equal(bfloat16(value), rounded)
  const values = samInput(noise(7, 5), 8, 'bfloat16')
  assert.ok(values.every((v) => bfloat16(v) === v))
})

/** Runs of a set of pixels, by brute force. */
function runsOf(height: number, width: number, inside: (x: number, y: number) => boolean) {
  const counts = [0]
  for (let x = 0; x < width; x++)
    for (let y = 0; y < height; y++) {
      if (inside(x, y) !== (counts.length % 2 === 0)) counts.push(0)
      counts[counts.length - 1]!++
    }
  return { height, width, counts: Uint32Array.from(counts) }
}

test('a cell is set exactly when its nearest sample is inside', () => {
  const side = fc.integer({ min: 1, max: 70 })
  fc.assert(
    fc.property(side, side, fc.nat(9), (height, width, seed) => {
      const random = stream(streamId.test, 'cells', seed)
      const dense = Uint8Array.from({ length: height * width }, () => random.below(2))
      const { cells, count } = regionGrid(
        runsOf(height, width, (x, y) => dense[y * width + x] === 1),
        16,
      )
      const expected = Uint8Array.from({ length: 256 }, (_, i) => {
        const y = Math.floor((Math.floor(i / 16) * height) / 16)
        return dense[y * width + Math.floor(((i % 16) * width) / 16)]!
      })
      if (expected.includes(1)) assert.deepEqual(cells, expected)
      assert.equal(
        count,
        cells.reduce((n, c) => n + c, 0),
      )
    }),
  )
})

test('a thin region takes the cell it overlaps most and says so; an empty one takes none', () => {
  const line = runsOf(64, 64, (x, y) => x === 21 && y >= 30 && y < 39) // column 5; rows 7 (2), 8 (4), 9 (3 pixels)
  const thin = regionGrid(line, 16)
  assert.deepEqual([thin.count, thin.fallback, thin.cells.indexOf(1)], [1, true, 8 * 16 + 5])
  const empty = regionGrid(
    runsOf(64, 64, () => false),
    16,
  )
  assert.deepEqual([empty.count, empty.fallback, empty.cells.includes(1)], [0, false, false])
})

test('a grid as fine as a picture has the samples of torch, also where rounding to float32 decides', () => {
  const random = stream(streamId.test, 'fine cells')
  for (const [height, width, rows, columns] of [
    [26, 9, 44, 5],
    [9, 26, 5, 44],
    [28, 30, 46, 52],
  ] as const) {
    // biome-ignore format: a table
    const dense = Float32Array.from({ length: height * width }, () => random.below(2))
    const mask = runsOf(height, width, (x, y) => dense[y * width + x] === 1)
    const sampled = tidy(() => {
      const resized = aten('upsample_nearest2d', tensor(dense, [1, 1, height, width]), [rows, columns]) as Tensor
      return resized.numbers()
    })
    assert.deepEqual([...regionGrid(mask, { rows, columns }).cells], sampled)
  }
})

test('a pixel that is in no sample is in the cell that has its centre', () => {
  const pixel = runsOf(5, 5, (x, y) => x === 1 && y === 2) // centre 2.5 of 5: the second of two rows
  assert.deepEqual([...regionGrid(pixel, 2).cells], [0, 0, 1, 0])
})

test('runs over the end of a column tint whole columns', () => {
  const image = noise(5, 4)
  const inside = (x: number, y: number) => x * 4 + y >= 3 && x * 4 + y < 14
  const out = overlay(image, runsOf(4, 5, inside), [0, 0, 0])
  for (let i = 0; i < 20; i++) {
    const [red, tinted] = [image.data[3 * i]!, (image.data[3 * i]! + 1) >> 1]
    assert.equal(out.data[3 * i], inside(i % 5, Math.floor(i / 5)) ? tinted : red)
  }
})

test('an overlay tints the region and nothing else', () => {
  const image = noise(8, 6)
  const mask = runsOf(6, 8, (x, y) => x >= 2 && x < 5 && y > 1)
  const out = overlay(image, mask, [255, 0, 0])
  for (let y = 0; y < 6; y++)
    for (let x = 0; x < 8; x++)
      for (let c = 0; c < 3; c++) {
        const at = (y * 8 + x) * 3 + c
        const inside = x >= 2 && x < 5 && y > 1
        const target = c === 0 ? 255 : 0
        assert.equal(out.data[at], inside ? Math.round((image.data[at]! + target) / 2) : image.data[at])
      }
})

test('bad options, sizes and lengths are a Mismatch', () => {
  const image = noise(8, 6)
  assert.throws(() => tileGrid(0, 5), Mismatch)
  assert.throws(() => tileGrid(5, 5, { minTiles: 3, maxTiles: 2 }), Mismatch)
  assert.throws(() => tiles(image, { tileSize: 0 }), Mismatch)
  assert.throws(() => pixelValues({ ...image, height: 7 }), Mismatch)
  assert.throws(() => normaliseChw(image, [0, 0], [1, 1]), Mismatch)
  assert.throws(() => normaliseChw(image, [0, 0, 0], [1, 0, 1]), Mismatch)
  assert.throws(() => samInput(image, 0), Mismatch)
  assert.throws(() => overlay(image, { height: 8, width: 6, counts: new Uint32Array([48]) }), Mismatch)
  assert.throws(() => regionGrid({ height: 8, width: 6, counts: new Uint32Array([48]) }, 0), Mismatch)
})
