import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { garRow, rowsOf, testFolder } from '../../tests/support/data.ts'
import { maskArea } from '../mask/index.ts'
import { writeGarArrow } from './arrow/write.ts'
import { DataConfig, type DataOptions } from './config.ts'
import type { Example, Source } from './example.ts'
import { type Loader, openLoader } from './loader.ts'
import { curriculumBuckets, isEval, shuffleInPlace } from './order.ts'
import { openSource } from './sources/open.ts'

const root = testFolder()
const folder = join(root, 'set')
const rows = await Promise.all(Array.from({ length: 41 }, (_, i) => garRow(i)))
// every tenth record cannot be used: positions must count it all the same
for (let i = 5; i < rows.length; i += 10) rows[i]!.image.bytes = Buffer.from('not an image')
await writeGarArrow(folder, rowsOf(rows), { shardBytes: 12 * rows[0]!.image.bytes!.length, batchRows: 5 })

const settings: DataOptions = { seed: 3, workers: 0, maxRejectFraction: 0.5, prefetch: 4 }

async function withLoader<T>(
  options: DataOptions,
  rank: { rank: number; world: number },
  use: (loader: Loader, source: Source) => Promise<T>,
): Promise<T> {
  const source = await openSource(folder, options)
  const loader = openLoader(source, options, rank)
  try {
    return await use(loader, source)
  } finally {
    await loader.close()
    await source.close()
  }
}

async function take(loader: Loader, n: number): Promise<string[]> {
  const ids: string[] = []
  for (let i = 0; i < n; i++) ids.push((await loader.next()).id)
  return ids
}

for (const world of [1, 2]) {
  test(`the ids after a restart at any point equal the uninterrupted ones, over epochs, for ${world} rank(s)`, async () => {
    for (let rank = 0; rank < world; rank++) {
      const whole = await withLoader(settings, { rank, world }, (loader) => take(loader, 50))
      for (const stop of [1, 19, 37, 41]) {
        const saved = await withLoader(settings, { rank, world }, async (loader) => {
          assert.deepEqual(await take(loader, stop), whole.slice(0, stop))
          return JSON.stringify(loader.state())
        })
        await withLoader(settings, { rank, world }, async (loader) => {
          loader.restore(JSON.parse(saved))
          assert.deepEqual(await take(loader, 50 - stop), whole.slice(stop), `stopped after ${stop}`)
          const { seen, rejects } = loader.state()
          assert.equal(seen, 50 + rejects['image-unreadable']!, `read, stopped after ${stop}`)
        })
      }
    }
  })
}

test('two ranks together see every record of an epoch once', async () => {
  const seen: string[] = []
  for (const rank of [0, 1]) {
    await withLoader(settings, { rank, world: 2 }, async (loader) => {
      for await (const example of loader) seen.push(example.id)
      assert.equal(loader.state().epoch, 1)
      assert.equal(loader.state().position, 0)
    })
  }
  assert.equal(seen.length, 37)
  assert.equal(new Set(seen).size, 37)
})

test('seed and epoch decide the order; without shuffling it is the stored one', async () => {
  const first = await withLoader(settings, { rank: 0, world: 1 }, (loader) => take(loader, 74))
  const again = await withLoader(settings, { rank: 0, world: 1 }, (loader) => take(loader, 74))
  assert.deepEqual(first, again)
  assert.notDeepEqual(first.slice(0, 37), first.slice(37))
  assert.deepEqual(first.slice(0, 37).sort(), first.slice(37).sort())
  const other = await withLoader({ ...settings, seed: 4 }, { rank: 0, world: 1 }, (loader) => take(loader, 37))
  assert.notDeepEqual(first.slice(0, 37), other)
  const stored = await withLoader({ ...settings, shuffle: false }, { rank: 0, world: 1 }, async (loader, source) => {
    const usable = Array.from({ length: 41 }, (_, i) => i).filter((i) => i % 10 !== 5)
    assert.deepEqual(
      await take(loader, 37),
      usable.map((i) => source.id(i)),
    )
    return loader.rejects
  })
  assert.deepEqual(stored, { 'image-unreadable': 4 })
})

test('a shuffle may leave any record anywhere: all orders of three are equally likely', () => {
  const counts = new Map<string, number>()
  for (let epoch = 0; epoch < 600; epoch++) {
    const items = Uint32Array.of(0, 1, 2)
    shuffleInPlace(items, 11, epoch)
    counts.set(items.join(), (counts.get(items.join()) ?? 0) + 1)
  }
  assert.equal(counts.size, 6)
  for (const [order, count] of counts) assert.ok(count > 60 && count < 140, `${order}: ${count} of 600`)
})

test('worker threads give the same records in the same order as the main thread', async () => {
  const read = (workers: number) =>
    withLoader({ ...settings, workers }, { rank: 0, world: 1 }, async (loader) => {
      const out: Example[] = []
      for await (const example of loader) out.push(example)
      return { out, rejects: loader.rejects, rejected: loader.rejected.map((bad) => bad.message) }
    })
  assert.deepEqual(await read(2), await read(0))
})

test('a loader closed while its threads decode ahead ends them', async () => {
  for (let i = 0; i < 6; i++) {
    const taken = await withLoader({ ...settings, workers: 2 }, { rank: 0, world: 1 }, (loader) => take(loader, 5 + i))
    assert.equal(taken.length, 5 + i)
  }
})

test('no more is read ahead than the window and the memory budget allow', async () => {
  const source = await openSource(folder, settings)
  let asked = 0
  let open = 0
  let most = 0
  const counting: Source = {
    ...source,
    region: async (index, options) => {
      asked++
      most = Math.max(most, ++open)
      return await source.region(index, options).finally(() => open--)
    },
  }
  const pause = () => new Promise((resolve) => setTimeout(resolve, 50))
  const window = openLoader(counting, { ...settings, prefetch: 6 })
  await window.next()
  await pause()
  assert.ok(asked <= 1 + 6 + 1, `${asked} records read for 1 handed out`)
  assert.equal(most, 1)
  await window.close()
  asked = 0
  const image = 24 * 16 * 3
  const budget = openLoader(counting, {
    ...settings,
    shuffle: false,
    prefetch: 40,
    prefetchMiB: (2.5 * image) / 1024 / 1024,
  })
  await budget.next()
  await pause()
  assert.ok(asked <= 1 + 3, `${asked} records read with room for 3`)
  const ahead = asked - 1
  for (let taken = 1; taken < 5; taken++) await budget.next()
  await pause()
  assert.equal(asked - 5, ahead, 'what was handed out makes room again')
  await budget.close()
  await source.close()
})

test('a record is given as soon as it is read; the rest of the window is read while the caller waits for something else', async () => {
  const source = await openSource('scenes:40')
  let reads = 0
  const counting: Source = {
    ...source,
    region: (index) => {
      reads++
      return source.region(index)
    },
  }
  const loader = openLoader(counting, { workers: 0, prefetch: 8 })
  await take(loader, 3)
  assert.ok(reads <= 4, `${reads} records were read for the first three`)
  for (let turn = 0; turn < 20; turn++) await new Promise((done) => setImmediate(done))
  assert.equal(reads, 11)
  await loader.close()
  await source.close()
})

test('calls of next that overlap are answered in order', async () => {
  const inTurn = await withLoader(settings, { rank: 0, world: 1 }, (loader) => take(loader, 12))
  const together = await withLoader(settings, { rank: 0, world: 1 }, async (loader) =>
    (await Promise.all(Array.from({ length: 12 }, () => loader.next()))).map((e) => e.id),
  )
  assert.deepEqual(together, inTurn)
})

test('a position of other data, seed or number of ranks is refused', async () => {
  await withLoader(settings, { rank: 0, world: 1 }, async (loader) => {
    const state = loader.state()
    assert.throws(() => loader.restore({ ...state, seed: 9 }), /saved data position: seed: expected 3, got 9/)
    assert.throws(() => loader.restore({ ...state, world: 2 }), /world/)
    assert.throws(() => loader.restore({ ...state, fingerprint: 'x' }), /not those the position was saved for/)
  })
})

test('train and eval are disjoint, cover everything, and depend on the id alone', async () => {
  const part = (split: 'train' | 'eval') =>
    withLoader({ ...settings, split, evalFraction: 0.3 }, { rank: 0, world: 1 }, async (loader) => {
      const ids: string[] = []
      for await (const { id } of loader) ids.push(id)
      return ids
    })
  const [train, evaluation] = [await part('train'), await part('eval')]
  assert.equal(new Set([...train, ...evaluation]).size, 37)
  assert.ok(evaluation.length > 3 && evaluation.length < 22)
  assert.ok(evaluation.every((id) => isEval(id, 0.3)) && !train.some((id) => isEval(id, 0.3)))
  const many = Array.from({ length: 20000 }, (_, i) => isEval(`x/${i}`, 0.1)).filter(Boolean).length
  assert.ok(Math.abs(many - 2000) < 150, `${many} of 20000 ids at a fraction of 0.1`)
})

/** `scenes:6` without pixels in the masks of these records. */
async function withEmptyMasks(empty: readonly number[]): Promise<Source> {
  const source = await openSource('scenes:6')
  const region: Source['region'] = async (index) => {
    const found = await source.region(index)
    const { height, width } = found.mask
    return empty.includes(index) ? { ...found, mask: { height, width, counts: Uint32Array.of(height * width) } } : found
  }
  return { ...source, region }
}

test('records that a task leaves out for their empty masks are not damage, however many there are', async () => {
  const source = await withEmptyMasks([0, 1, 2, 3, 4])
  const strict = { workers: 0, shuffle: false, maxRejectFraction: 0, onBadRecord: 'stop' } as const
  const leaving = openLoader(source, strict, undefined, null, { usesEmpty: () => false })
  assert.deepEqual(await take(leaving, 2), [source.id(5), source.id(5)])
  assert.deepEqual(leaving.rejects, { 'empty-mask': 10 })
  await assert.rejects(openLoader(source, strict).next(), /mask: expected at least one pixel/)
  await source.close()
})

test('the limit on unusable records is a share that may be reached', async () => {
  const source = await withEmptyMasks([2, 5])
  const options = { workers: 0, shuffle: false, maxRejectFraction: 1 / 3 }
  const loader = openLoader(source, options)
  await take(loader, 8)
  assert.deepEqual(loader.rejects, { 'empty-mask': 3 })
  await assert.rejects(take(openLoader(source, { ...options, maxRejectFraction: 0.33 }), 8), /unusable records/)
  await source.close()
})

test('the curriculum orders groups by mask size, and shuffles inside them', async () => {
  const areas = (curriculum: 'large-first' | 'small-first', buckets: number) =>
    withLoader({ ...settings, curriculum, curriculumBuckets: buckets }, { rank: 0, world: 1 }, async (loader) => {
      const out: number[] = []
      for await (const { mask } of loader) out.push(maskArea(mask))
      return out
    })
  const small = await areas('small-first', 41)
  assert.deepEqual(
    small,
    small.toSorted((a, b) => a - b),
  )
  const large = await areas('large-first', 41)
  assert.deepEqual(
    large,
    large.toSorted((a, b) => b - a),
  )
  const halves = await areas('small-first', 2)
  const middle = small[18]!
  assert.ok(Math.max(...halves.slice(0, 16)) <= middle && Math.min(...halves.slice(-16)) >= middle)
  assert.notDeepEqual(halves, small)
  const orders = await withLoader(
    { ...settings, curriculum: 'small-first', curriculumBuckets: 1 },
    { rank: 0, world: 1 },
    async (loader) => [await take(loader, 37), await take(loader, 37)],
  )
  assert.notDeepEqual(orders[0], orders[1], 'every epoch has its own order inside a group')
})

test('the size of a mask is its share of the image, not its pixels', async () => {
  const masks = [
    { height: 10, width: 10, counts: Uint32Array.of(0, 100) },
    { height: 40, width: 40, counts: Uint32Array.of(0, 400, 1200) },
  ]
  const region = async (i: number) => ({ mask: masks[i]! })
  const source = { name: 'two', fingerprint: 'two sizes', length: 2, region } as unknown as Source
  const config = DataConfig.parse({ curriculum: 'large-first', curriculumBuckets: 2 })
  assert.deepEqual([...(await curriculumBuckets(source, config))!], [0, 1])
})

test('the curriculum follows stored difficulty scores; records without one come last', async () => {
  const file = join(root, 'scores.jsonl')
  const easy = await withLoader(settings, { rank: 0, world: 1 }, async (_, source) => {
    const ids = [7, 2, 30].map((i) => source.id(i))
    writeFileSync(file, ids.map((id, score) => JSON.stringify({ id, score })).join('\n'))
    return ids
  })
  const options: DataOptions = { ...settings, curriculum: 'easy-first', curriculumBuckets: 41, difficultyFile: file }
  assert.deepEqual(await withLoader(options, { rank: 0, world: 1 }, (loader) => take(loader, 3)), easy)
  const hard: DataOptions = { ...options, curriculum: 'hard-first' }
  assert.deepEqual(await withLoader(hard, { rank: 0, world: 1 }, (loader) => take(loader, 3)), easy.toReversed())
  const none: DataOptions = { ...settings, curriculum: 'easy-first' }
  await assert.rejects(
    withLoader(none, { rank: 0, world: 1 }, (loader) => loader.next()),
    /difficultyFile/,
  )
})
