import assert from 'node:assert/strict'
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import test, { after, mock } from 'node:test'
import { hashes, hostOf, makeToy, openRun, runBytes, scratch, toyRun } from '../../tests/support/runs.ts'
import { FeatureStore } from '../checkpoint/index.ts'
import { log } from '../core/index.ts'
import type { WorkItem } from '../tasks/index.ts'
import { keep, zeros } from '../tensor/index.ts'
import { Encoder, featureFingerprint } from './features.ts'
import { train } from './train.ts'

const folder = scratch('features')
const toy = makeToy(join(folder, 'toy'))
after(() => rmSync(folder, { recursive: true, force: true }))

const opened = await openRun(toyRun(toy, join(folder, 'none')), 2)
after(() => opened.dispose())

const files = (root: string) =>
  (readdirSync(root, { recursive: true }) as string[]).filter((f) => f.endsWith('.safetensors'))
const { family } = opened.learner
const bits = (items: readonly WorkItem[]) =>
  items.map(({ features }) => [
    ...hashes(Object.entries(family.tensorsOf(features)).map(([n, t]) => [`${n} ${t.shape} ${t.dtype}`, t] as const)),
  ])

function through(store: FeatureStore | null, examples = opened.items.map((i) => i.example)): ReturnType<typeof bits> {
  return new Encoder(family, opened.config, { store }).with(examples, bits)
}

test('features from the disk are those of the encoder bit for bit, and an image is encoded once', () => {
  const root = join(folder, 'a')
  const store = new FeatureStore(root, 'x', 'cpu')
  const plain = through(null)
  assert.deepEqual(through(store), plain)
  assert.deepEqual(through(store), plain)
  assert.deepEqual([store.misses, store.hits], [2, 2])
  assert.equal(files(root).length, 2)
})

for (const [what, damage] of [
  ['cut short', (path: string) => truncateSync(path, statSync(path).size - 100)],
  ['empty', (path: string) => writeFileSync(path, '')],
  [
    'of the right size with one bit changed',
    (path: string) => {
      const bytes = readFileSync(path)
      bytes[bytes.length - 7]! ^= 4
      writeFileSync(path, bytes)
    },
  ],
] as const) {
  test(`a file that is ${what} is encoded again and replaced`, () => {
    const root = join(folder, what.slice(0, 5).trim())
    const plain = through(new FeatureStore(root, 'x', 'cpu'))
    for (const file of files(root)) damage(join(root, file))
    const store = new FeatureStore(root, 'x', 'cpu')
    assert.deepEqual(through(store), plain)
    assert.deepEqual([store.misses, store.hits], [2, 0])
    assert.deepEqual(through(store), plain)
    assert.equal(store.hits, 2)
  })
}

test('records that come again are encoded once where encoders are frozen, with the same bits', () => {
  const examples = opened.items.map((i) => i.example)
  const encode = family.encode.bind(family)
  const plain = through(null)
  try {
    for (const [frozen, times] of [
      [true, 2],
      [false, 4],
    ] as const) {
      let encoded = 0
      family.encode = (inputs) => {
        encoded += inputs.length
        return encode(inputs)
      }
      const encoder = new Encoder(family, opened.config, { frozen })
      assert.deepEqual(encoder.again(examples, bits), plain)
      assert.deepEqual(encoder.again([...examples].reverse(), bits), [...plain].reverse())
      assert.equal(encoded, times, `frozen ${frozen}`)
      encoder.close()
    }
  } finally {
    family.encode = encode
  }
})

test('another fingerprint and another image of the same id are other files', () => {
  const root = join(folder, 'b')
  through(new FeatureStore(root, 'x', 'cpu'))
  const other = new FeatureStore(root, 'y', 'cpu')
  through(other)
  assert.equal(other.misses, 2)
  const { example } = opened.items[0]!
  through(other, [{ ...example, image: { ...example.image, data: example.image.data.map((v) => 255 - v) } }])
  assert.equal(other.misses, 3)
})

test('the fingerprint changes with tiles, dtype, the weight files and the preprocessor, and with nothing that leaves features alone', () => {
  const of = (more: object) => featureFingerprint({ ...opened.config, ...more }, family)
  const here = of({})
  assert.equal(of({ seed: 9, batchSize: 7, output: 'elsewhere' }), here)
  assert.notEqual(of({ maxTiles: 3 }), here)
  assert.notEqual(of({ dtype: 'bfloat16' }), here)
  const preprocessor = join(toy, 'preprocessor_config.json')
  writeFileSync(preprocessor, '{"image_std": [0.5, 0.5, 0.5]}')
  assert.notEqual(of({}), here)
  rmSync(preprocessor)
  assert.equal(of({}), here)
  const weights = join(toy, 'model.safetensors')
  const { atime, mtimeMs } = statSync(weights)
  utimesSync(weights, atime, new Date(mtimeMs + 5000))
  assert.notEqual(of({}), here)
})

test('a run with a store, cold or warm, learns the same weights as one without', async () => {
  const weights = async (name: string, featureCache: string | null) => {
    const config = toyRun(toy, join(folder, name), { maxSteps: 2, saveSteps: 0, featureCache })
    await train(config, hostOf())
    const all = runBytes(config.output)
    return ['adapter_model', 'trainables', 'ema', 'optimizer'].map((f) => all.get(`checkpoint_step_2/${f}.safetensors`))
  }
  const plain = await weights('plain', null)
  assert.ok(plain.every(Boolean))
  assert.deepEqual(await weights('cold', join(folder, 'c')), plain)
  assert.deepEqual(await weights('warm', join(folder, 'c')), plain)
})

test('an image of another shape is another image, and a damaged file is removed before the image is encoded', () => {
  const root = join(folder, 'shapes')
  const store = new FeatureStore(root, 'x', 'cpu')
  const data = new Uint8Array(24)
  const make = () => ({ a: keep(zeros([1])) })
  for (const [width, height] of [
    [4, 2],
    [2, 4],
  ] as const)
    store.get('one', { width, height, data }, make)['a']!.dispose()
  assert.deepEqual([store.misses, files(root).length], [2, 2])
  for (const file of files(root)) writeFileSync(join(root, file), '')
  const fails = () => store.get('one', { width: 4, height: 2, data }, () => assert.fail('encoding failed'))
  assert.throws(fails, /encoding failed/)
  assert.equal(files(root).length, 1)
})

test('a store that cannot be written any more says so once, and features are encoded as without it', () => {
  const root = join(folder, 'full')
  const store = new FeatureStore(root, 'x', 'cpu')
  rmSync(root, { recursive: true })
  writeFileSync(root, '') // no folder to write to: as good as a full disk
  const warn = mock.method(log, 'warn', () => undefined)
  try {
    assert.deepEqual(through(store), through(null))
    assert.deepEqual([store.misses, warn.mock.callCount()], [2, 1])
    assert.match(`${warn.mock.calls[0]!.arguments[0]}`, /features are no longer stored in .*full/)
    const stuck = join(folder, 'stuck')
    through(new FeatureStore(stuck, 'x', 'cpu'))
    for (const file of files(stuck)) {
      rmSync(join(stuck, file))
      mkdirSync(join(stuck, file)) // can neither be read nor be removed: as good as a damaged file of a read-only disk
    }
    assert.deepEqual(through(new FeatureStore(stuck, 'x', 'cpu')), through(null))
    const texts = warn.mock.calls.map(({ arguments: [text] }) => `${text}`)
    assert.equal(texts.filter((text) => /no longer stored in .*stuck/.test(text)).length, 1)
  } finally {
    warn.mock.restore()
  }
})
