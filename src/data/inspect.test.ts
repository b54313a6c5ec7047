import assert from 'node:assert/strict'
import test from 'node:test'
import { maskFromDense } from '../mask/index.ts'
import { BadRecord, type Example, type Source } from './example.ts'
import { inspectSource } from './inspect.ts'

/** A picture whose first rows are inside. */
function example(id: string, [width, height]: [number, number], rows: number, caption: string): Example {
  const inside = Uint8Array.from({ length: width * height }, (_, i) => (i < rows * width ? 1 : 0))
  const image = { width, height, data: new Uint8Array(3 * width * height) }
  return { id, image, mask: maskFromDense(inside, height, width), caption, meta: {} }
}

const records = [
  example('wide', [300, 20], 2, 'a wide thing'),
  example('high', [20, 600], 600, 'one two three four five'),
  null,
]

const source = {
  name: 'made',
  format: 'list',
  length: records.length,
  schema: [],
  warnings: ['a warning'],
  leftOut: { relation: 4 },
  broken: [new BadRecord('broken-shard', { where: 'shard 7', expected: 'bytes', got: 'none' })],
  get: async (i: number) => {
    if (records[i]) return records[i]
    throw new BadRecord('no-mask', { where: `record ${i}`, expected: 'a mask', got: null })
  },
} as Partial<Source> as Source

test('sizes, shares and words are counted in the bins they belong to; what cannot be used by its reason', async () => {
  const found = await inspectSource(source)
  const filled = found.histograms.map(({ bins }) => bins.filter(({ count }) => count > 0).map(({ label }) => label))
  assert.deepEqual(filled, [
    ['256 to 512', '512 to 768'], // the longer sides 300 and 600
    ['10 to 20', '50 and more'], // exactly a tenth, and all of it
    ['0 to 5', '5 to 10'], // three words, and exactly five
  ])
  const counts = Object.entries(found.rejects).map(([why, { count }]) => [why, count])
  assert.deepEqual(counts, [
    ['broken-shard', 1],
    ['no-mask', 1],
  ])
  assert.deepEqual(
    [found.records, found.checked, found.warnings, found.leftOut],
    [3, 3, ['a warning'], { relation: 4 }],
  )
  assert.deepEqual(
    found.first.map(({ id, image, mask }) => [id, image, mask]),
    [
      ['wide', '300 x 20', '10.00 % inside, box [0,0,300,2]'],
      ['high', '20 x 600', '100.00 % inside, box [0,0,20,600]'],
    ],
  )
  assert.equal((await inspectSource(source, { sample: 2 })).checked, 2)
})
