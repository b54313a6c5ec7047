import assert from 'node:assert/strict'
import { test } from 'node:test'
import { alone, type World } from '../distributed/index.ts'
import type { Group } from '../rl/index.ts'
import { AlarmWatch, lineBytes, type Sample } from '../tracking/index.ts'
import { prepareSamples, writeSamples } from './samples.ts'

/** A group of two samples, and how often its samples were shown. */
function groupOf(id: string): { group: Group; shown: () => number } {
  let count = 0
  const task = {
    name: 'loop1',
    shown: () => {
      count++
      return [{ kind: 'text', by: 'record', value: id }]
    },
  }
  const image = { width: 2, height: 1, data: Uint8Array.of(1, 2, 3, 4, 5, 6) }
  const one = (k: number) => ({ text: `${id} ${k}`, ids: Int32Array.of(1), logps: Float32Array.of(-k), finished: true })
  const scores = [0, 1].map((k) => ({ total: k, parts: { iou: k }, counted: [] }))
  const group = {
    ...{ task, item: { id, example: { image } }, samples: [one(0), one(1)], replies: [{}, {}], scores },
    advantages: Float64Array.of(-1, 1),
  }
  return { group: group as unknown as Group, shown: () => count }
}

function runFolder(samplesMiB = 1) {
  const written: Sample[] = []
  const images = new Map<string, Uint8Array>()
  const writer = {
    ...{
      sampleBytes: 0,
      hasImage: (id: string) => images.has(id),
      samples: (some: readonly Sample[]) => written.push(...some),
    },
    imageName: (id: string) => `${id}.png`,
    image: (id: string, png: () => Uint8Array) => {
      if (!images.has(id)) images.set(id, png())
      return `${id}.png`
    },
  }
  const plain = { world: alone, writer, config: { samplesMiB }, notices: { report: () => undefined } }
  return { ...plain, alarms: new AlarmWatch(), written, images }
}

test('samples that were prepared while a step learned are the same as others, and computed once', async () => {
  const [plain, prepared] = [runFolder(), runFolder()]
  const [one, other] = [groupOf('a'), groupOf('a')]
  await writeSamples([one.group], 3, plain)
  const rows = prepareSamples([other.group], 3, prepared)
  assert.deepEqual([prepared.written, prepared.images.size], [[], 0], 'nothing is written yet')
  const samples = await writeSamples([other.group], 3, prepared)
  const lines = (folder: typeof plain) => folder.written.map((row) => lineBytes(row).toString())
  assert.deepEqual(lines(prepared), lines(plain))
  assert.deepEqual(prepared.images, plain.images)
  assert.deepEqual([one.shown(), other.shown()], [2, 2])
  assert.ok(
    samples.every((sample, i) => sample === rows[i]),
    'what is known of a row is known of its sample',
  )
})

test('a sample has the mask of the policy before that of the EMA copy, all log-probs added up, and whether it was cut', async () => {
  const { group } = groupOf('a')
  const mask = (by: string, counts: string) => ({ kind: 'mask', by, value: { size: [1, 2], counts } })
  const shown = [mask('record', 'r'), mask('ema', 'e'), mask('policy', 'p')]
  const samples = [
    { text: 'x', ids: Int32Array.of(1, 2, 3), logps: Float32Array.of(-0.5, -0.25, -1), finished: false },
    { text: 'y', ids: Int32Array.of(1), logps: Float32Array.of(-2), finished: true },
  ]
  const task = { name: 'loop1', shown: (_: unknown, { text }: Sample) => (text === 'x' ? shown : shown.slice(0, 2)) }
  const rows = await writeSamples([{ ...group, task, samples } as unknown as Group], 3, runFolder())
  assert.deepEqual(
    rows.map(({ made, madeBy, given, logp, length, truncated }) => [made!.counts, madeBy, given!.counts, logp, length, truncated]),
    [['p', 'policy', 'r', -1.75, 3, true], ['e', 'ema', 'r', -2, 1, undefined]],
  ) // biome-ignore format: one line
})

test('what is written, has no replies or finds no room is not prepared', async () => {
  const [folder, full] = [runFolder(), runFolder(0)]
  const [one, other] = [groupOf('a'), groupOf('b')]
  await writeSamples([one.group], 1, folder)
  assert.deepEqual(prepareSamples([one.group, { ...other.group, replies: [] }], 2, folder), [])
  assert.deepEqual(prepareSamples([other.group], 2, full), [])
  assert.equal(other.shown(), 0)
})

test('what a process has read of its samples goes to the one that writes them', async () => {
  const [folder, one, other] = [runFolder(), groupOf('a'), groupOf('b')]
  const theirs = new AlarmWatch()
  const rows = prepareSamples([other.group], 3, { ...folder, alarms: theirs })
  const traits = rows.map((row) => ({ ...theirs.traitsOf(row), words: ['read', 'there'] }))
  const second = { own: [null, rows], traits: [null, traits], pngs: [['b', Uint8Array.of(1)]] }
  const gather = async (value: object) => structuredClone('own' in value ? [value, second] : [value, value])
  const world = { ...alone, size: 2, gather } as World
  const samples = await writeSamples([one.group, { ...other.group, replies: [] }], 3, { ...folder, world })
  assert.deepEqual(
    samples.map((sample) => [sample.id, folder.alarms.traitsOf(sample).words.join(' ')]),
    [
      ['a', 'a 0'],
      ['a', 'a 1'],
      ['b', 'read there'],
      ['b', 'read there'],
    ],
  )
})
