// Parts of a Qwen-VL prompt that need no weight: sides, pixel values, positions of several images, what two prompts share.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { gridPositions, type QwenFeatures, QwenVL } from './model.ts'
import { clipProcessor, firstSize, patchResized, readProcessorConfig, smartResize } from './processor.ts'

test('no side of a thin picture falls below one unit, within and before the processor', () => {
  const small = { ...clipProcessor, maxPixels: 28 * 28 * 100 }
  assert.deepEqual(smartResize(4000, 30, small), [3220, 28])
  assert.deepEqual(smartResize(30, 4000, small), [28, 3220])
  assert.deepEqual(firstSize(20, 20), [56, 56], 'four units at least')
  assert.deepEqual(firstSize(20, 200), [28, 196])
})

test('separate limits in a file are those of the pictures, also beside a size', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'processor-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const size = { shortest_edge: 1, longest_edge: 2 }
  const write = (more: object) =>
    writeFileSync(join(dir, 'preprocessor_config.json'), JSON.stringify({ size, ...more }))
  write({ min_pixels: 3136, max_pixels: 12845056 })
  const { minPixels, maxPixels } = readProcessorConfig(dir)
  assert.deepEqual([minPixels, maxPixels], [3136, 12845056])
  write({})
  assert.equal(readProcessorConfig(dir).maxPixels, 2)
})

test('a fast processor has the division by 255 in mean and deviation, every step rounded to float32', () => {
  const { mean, std, patch } = clipProcessor
  const side = 2 * patch
  const data = Uint8Array.from({ length: side * side * 3 }, (_, i) => Math.floor(i / 3) % 256)
  const { pixels } = patchResized({ width: side, height: side, data }, { ...clipProcessor, fast: true })
  const f = Math.fround
  const whole = (x: number) => f(f(x) * 255)
  const values = mean.map((m, c) => Array.from({ length: 256 }, (_, v) => f(f(v - whole(m)) / whole(std[c]!))))
  const found = new Set(pixels)
  assert.deepEqual(found, new Set(values.flat()))
  const exact = mean.flatMap((m, c) => Array.from({ length: 256 }, (_, v) => f(f(f(v / 255) - f(m)) / f(std[c]!))))
  assert.ok(
    exact.some((value) => !found.has(value)),
    'the slow order of steps gives other numbers',
  )
})

test('every image counts from the end of what is before it, with its own rows and columns', () => {
  const image = 9
  const grids = [{ rows: 2, columns: 6 }, { rows: 4, columns: 2 }] // biome-ignore format: one line
  const ids = Int32Array.of(1, 9, 9, 9, 2, 9, 9, 3)
  const { axes, next } = gridPositions(ids, grids, image, 2)
  assert.deepEqual(axes.map((axis) => [...axis]), [[0, 1, 1, 1, 4, 5, 5, 7], [0, 1, 1, 1, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 5, 7]]) // biome-ignore format: one line
  assert.equal(next, 8)
})

test('prompts share what is read of the same images alone, never of others or of none', () => {
  const [one, other] = [{}, {}] as QwenFeatures[]
  const prompt = (...images: (QwenFeatures | undefined)[]) => ({
    ids: Int32Array.of(1, 9, 2, 3),
    images: images as QwenFeatures[],
  })
  const shared = (a: ReturnType<typeof prompt>, b: ReturnType<typeof prompt>) => QwenVL.prototype.sharedPrefix(a, b)
  assert.equal(shared(prompt(one), { ...prompt(one), ids: Int32Array.of(1, 9, 2, 4) }), 3)
  assert.equal(shared(prompt(one), prompt(other)), 0)
  assert.equal(shared(prompt(one, other), prompt(one)), 0)
  assert.equal(shared(prompt(), prompt()), 0)
})
