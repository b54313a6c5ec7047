// Images are prepared in the decoding threads: the same plain data as here, and the engine thread does not do it again.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { openLoader, openSource } from '../data/index.ts'
import { openFamily } from '../models/index.ts'
import { resolveRun } from './config.ts'
import { Encoder, preparationOf } from './features.ts'

const golden = join(import.meta.dirname, '../../tests/fixtures/golden')
const settings = { dataPath: 'scenes:6:3', data: { workers: 2, shuffle: false }, device: 'cpu' as const, maxTiles: 2 }

for (const set of ['sa2va-tiny', 'sa2va-qwen2_5_vl-tiny', 'sa2va-qwen3vl-tiny', 'qwen2_5_vl-tiny']) {
  test(`${set}: a decoding thread prepares what the family would, and encoding takes it as it is`, async () => {
    const config = resolveRun({ ...settings, model: join(golden, set), output: 'unused' })
    const family = openFamily(config.model)
    const source = await openSource(config.dataPath, config.data)
    const loader = openLoader(source, config.data, undefined, preparationOf(family, config))
    try {
      const example = await loader.next()
      assert.deepEqual(example.prepared, family.prepare(example.image, { maxTiles: 2 }))
      const encode = () =>
        new Encoder(family, config).with([example], ([item]) =>
          Object.entries(family.tensorsOf(item!.features)).map(([name, t]) => [name, t.numbers()]),
        )
      const { prepared: _, ...plain } = example
      const expected = new Encoder(family, config).with([plain], ([item]) =>
        Object.entries(family.tensorsOf(item!.features)).map(([name, t]) => [name, t.numbers()]),
      )
      family.prepare = () => assert.fail('prepared again')
      assert.deepEqual(encode(), expected)
    } finally {
      await loader.close()
      await source.close()
    }
  })
}

test('the memory budget of reading ahead counts what was prepared', async () => {
  const config = resolveRun({ ...settings, model: join(golden, 'sa2va-tiny'), output: 'unused' })
  const family = openFamily(config.model)
  const source = await openSource('scenes:64:3', config.data)
  let read = 0
  const region = source.region.bind(source)
  source.region = (i) => {
    read++
    return region(i)
  }
  const loader = openLoader(
    source,
    { ...config.data, prefetch: 16, prefetchMiB: 1 },
    undefined,
    preparationOf(family, config),
  )
  try {
    const sizes: number[] = []
    for (let taken = 1; taken <= 40; taken++) {
      const { image, prepared } = await loader.next()
      const { pixels, samPixels } = prepared as { pixels: Float32Array; samPixels: Float32Array }
      sizes.push(image.data.byteLength + pixels.byteLength + samPixels.byteLength)
      const ahead = Math.ceil(2 ** 20 / Math.min(...sizes))
      if (taken > 16) assert.ok(read - taken <= ahead, `${read - taken} records ahead, ${ahead} fit the budget`) // 16: before any size was known
    }
    assert.ok(Math.ceil(2 ** 20 / Math.min(...sizes)) < 12, 'the budget is what binds')
  } finally {
    await loader.close()
    await source.close()
  }
})

test('a kind whose tasks read images themselves has nothing prepared and nothing encoded for it', async () => {
  const config = resolveRun({ ...settings, model: join(golden, 'qwen2_5_vl-tiny'), output: 'unused' })
  const family = openFamily(config.model)
  family.encode = () => assert.fail('encoded')
  assert.equal(preparationOf(family, config, { readsImages: true }), null)
  const source = await openSource(config.dataPath, config.data)
  const loader = openLoader(source, { ...config.data, workers: 0 })
  const encoder = new Encoder(family, config, { encodes: false })
  const captions = encoder.with([await loader.next()], (items) => items.map((item) => item.example.caption))
  assert.equal(captions.length, 1)
  await loader.close()
  await source.close()
})
