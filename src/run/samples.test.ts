import assert from 'node:assert/strict'
import { test } from 'node:test'
import { alone, type World } from '../distributed/index.ts'
import type { Group } from '../rl/index.ts'
import { imageName, type Sample, type SampleLine } from '../tracking/index.ts'
import { SampleLog } from './samples.ts'

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

/** What a log writes, as it is in the folder. */
function folderOf({ samplesMiB = 1, world = alone }: { samplesMiB?: number; world?: World } = {}) {
  const lines: string[] = []
  const images = new Map<string, Uint8Array>()
  const notices: string[] = []
  const writer = {
    get sampleBytes() {
      return Buffer.byteLength(lines.join(''))
    },
    samples: (some: readonly (Sample | SampleLine)[]) => {
      for (const one of some) lines.push(Buffer.from((one as SampleLine).line).toString())
    },
    hasImage: (id: string) => images.has(id),
    image: (id: string, png: Uint8Array) => void (images.has(id) || images.set(id, png)),
  }
  const report = ({ kind }: { kind: string }) => void notices.push(kind)
  const log = new SampleLog({ world, writer, config: { samplesMiB }, notices: { report } })
  const write = async (groups: Group[], step: number) =>
    log.write(groups, await world.gather({ samples: await log.share(groups, step) }))
  return { log, write, lines, images, notices, rows: () => lines.map((line) => JSON.parse(line) as Sample) }
}

test('samples that were prepared while a step learned are the same as others, and computed once', async () => {
  const [plain, prepared] = [folderOf(), folderOf()]
  const [one, other] = [groupOf('a'), groupOf('a')]
  const traits = await plain.write([one.group], 3)
  prepared.log.prepare([other.group], 3)
  prepared.log.prepare([other.group], 3)
  assert.deepEqual([prepared.lines, prepared.images.size], [[], 0], 'nothing is written yet')
  assert.deepEqual(await prepared.write([other.group], 3), traits)
  assert.deepEqual(prepared.lines, plain.lines)
  assert.deepEqual(prepared.images, plain.images)
  assert.deepEqual([one.shown(), other.shown()], [2, 2])
  assert.deepEqual(
    plain.rows().map(({ step, loop, id, k, text, image }) => [step, loop, id, k, text, image]),
    [0, 1].map((k) => [3, 'loop1', 'a', k, `a ${k}`, imageName('a')]),
  )
  assert.deepEqual(
    traits.map(({ values, k }) => [k, values.reward]),
    [
      [0, 0],
      [1, 1],
    ],
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
  const { write, rows } = folderOf()
  await write([{ ...group, task, samples } as unknown as Group], 3)
  assert.deepEqual(
    rows().map(({ made, madeBy, given, logp, length, truncated }) => [made!.counts, madeBy, given!.counts, logp, length, truncated]),
    [['p', 'policy', 'r', -1.75, 3, true], ['e', 'ema', 'r', -2, 1, undefined]],
  ) // biome-ignore format: one line
})

test('what is written, has no replies or finds no room is not prepared', async () => {
  const [folder, full] = [folderOf(), folderOf({ samplesMiB: 0 })]
  const [one, other] = [groupOf('a'), groupOf('b')]
  await folder.write([one.group], 1)
  folder.log.prepare([one.group, { ...other.group, replies: [] }], 2)
  full.log.prepare([other.group], 2)
  assert.deepEqual(await full.write([other.group], 2), [])
  assert.deepEqual([one.shown(), other.shown(), full.lines], [2, 0, []])
})

/** Two processes whose gathers meet. */
function worlds(): [World, World] {
  const calls: unknown[][] = [[], []]
  const waiting: (() => void)[] = []
  return [0, 1].map((rank) => {
    const gather = async (value: unknown) => {
      const at = calls[rank]!.push(structuredClone(value)) - 1
      if (calls[1 - rank]!.length <= at) await new Promise<void>((go) => waiting.push(go))
      for (const go of waiting.splice(0)) go()
      return [calls[0]![at], calls[1]![at]]
    }
    return { ...alone, size: 2, rank, gather } as World
  }) as [World, World]
}

test('rank 0 writes what each process has encoded, in the order of the records; a picture travels once', async () => {
  const [first, second] = worlds()
  const [folder, other] = [folderOf({ world: first }), folderOf({ world: second })]
  const [a, b] = [groupOf('a').group, groupOf('b').group]
  const theirs = (group: Group): Group => ({ ...group, replies: [] })
  for (const step of [1, 2]) {
    const groups = [{ ...b }, { ...a }] as [Group, Group]
    const own = [theirs(groups[0]), groups[1]]
    folder.log.prepare(own, step)
    const [traits, none] = await Promise.all([
      folder.write(own, step),
      other.write([groups[0], theirs(groups[1])], step),
    ])
    assert.deepEqual(traits.map(({ id, k }) => `${id}${k}`), ['b0', 'b1', 'a0', 'a1']) // biome-ignore format: one line
    assert.deepEqual(none, [])
    if (step === 1) assert.ok(folder.images.delete('b'))
  }
  assert.deepEqual(folder.rows().map(({ step, text, image }) => [step, text, image]), [1, 2].flatMap((step) =>
    ['b 0', 'b 1', 'a 0', 'a 1'].map((text) => [step, text, imageName(text[0]!)]))) // biome-ignore format: one line
  assert.deepEqual([[...folder.images.keys()], other.lines], [['a'], []])
})

test('a full samples file is noticed by every process, a step later by those that do not write', async () => {
  const [first, second] = worlds()
  const samplesMiB = 100 / 2 ** 20
  const [folder, other] = [folderOf({ world: first, samplesMiB }), folderOf({ world: second, samplesMiB })]
  const counts: number[] = []
  for (const step of [1, 2, 3]) {
    const { group, shown } = groupOf('a')
    await Promise.all([folder.write([{ ...group, replies: [] }], step), other.write([group], step)])
    counts.push(shown())
  }
  assert.deepEqual(counts, [2, 2, 0])
  assert.deepEqual([folder.lines.length, folder.notices], [2, ['samples-full']])
})
