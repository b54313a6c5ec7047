// The limits of a run on what a picture becomes, together with those of its model.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { clipProcessor } from '../qwen_vl/index.ts'
import { preparation } from '../sa2va/inputs.ts'
import { prepare } from './prepare.ts'

const image = { width: 300, height: 200, data: new Uint8Array(300 * 200 * 3).fill(90) }
const settings = { processor: clipProcessor, maxPixels: 10 ** 7, resize: 'once', samSize: 16, precision: 'float32' } as const // biome-ignore format: one line
const areaOf = (more: Partial<Parameters<typeof prepare>[1]>) => {
  const { picture, patches } = prepare(image, { ...settings, ...more })
  assert.deepEqual([patches.height, patches.width], [picture.height, picture.width])
  return picture.width * picture.height
}

test("a picture is within the smaller of the run's limit and the processor's, below its least area if the run says so", () => {
  assert.equal(areaOf({}), 308 * 196)
  assert.ok(areaOf({ maxPixels: 28 * 28 * 20 }) <= 28 * 28 * 20)
  const narrow = { ...clipProcessor, maxPixels: 28 * 28 * 30 }
  assert.ok(areaOf({ processor: narrow }) <= 28 * 28 * 30, 'a larger limit of the run changes nothing')
  const large = { ...clipProcessor, minPixels: 28 * 28 * 200 }
  assert.ok(areaOf({ processor: large }) >= 28 * 28 * 200)
  assert.ok(areaOf({ processor: large, maxPixels: 28 * 28 * 100 }) < 28 * 28 * 200, "the least area is the run's too")
})

test('fewer tiles than the model cuts at least are as many as the run allows', () => {
  const cfg = { min_dynamic_patch: 3, max_dynamic_patch: 12, sam: {} } as Parameters<typeof preparation>[0]
  const tiles = (maxTiles?: number) => {
    const found = preparation(cfg, { maxTiles })
    return [found.minTiles, found.maxTiles]
  }
  assert.deepEqual([tiles(), tiles(5), tiles(2)], [[3, 12], [3, 5], [2, 2]]) // biome-ignore format: one line
})
