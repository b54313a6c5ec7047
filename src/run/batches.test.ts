// Which records a step is given, without a model: a task of a few numbers, a loader over a list.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import type { Example, Loader, Source } from '../data/index.ts'
import { alone } from '../distributed/index.ts'
import { initialEntropyState, RecordCosts, type Run, type Sample, Stopped, type Task } from '../rl/index.ts'
import { zeros } from '../tensor/index.ts'
import { Batches } from './batches.ts'
import { type RunInput, resolveRun } from './config.ts'
import type { Encoder } from './features.ts'

const K = 2

/** `more`: what differs from two sampled tokens in the samples of a record. */
function taskOf(name: string, more: (id: string) => Partial<Sample> = () => ({})): Task {
  const sample = (k: number, id = ''): Sample => ({
    ids: Int32Array.of(k, 1),
    text: `${k}`,
    finished: true,
    logps: new Float32Array(2),
    ...more(id),
  })
  return {
    name,
    weight: 1,
    beta: 0,
    sample: (items) => items.map(({ id }) => [sample(0, id), sample(1, id)]),
    answer: (items, groups) => groups.map((group, b) => group.map((_, k) => ({ id: items[b]!.id, k }))),
    densities: (_, groups) => groups.map(([first]) => ({ logps: zeros([K, first!.ids.length]), entropies: null })),
    actions: () => null,
    store: ({ text }) => text,
    restore: (text) => sample(Number(text)),
  } as Partial<Task> as Task
}

/** Records in the order of their names, over and over. */
function loaderOf(ids: readonly string[]) {
  let seen = 0
  return {
    next: async () => ({ id: ids[seen++ % ids.length]! }) as Example,
    state: () => ({ seen }) as never,
    restore: (state) => {
      seen = (state as unknown as { seen: number }).seen
    },
  } as Pick<Loader, 'next' | 'state' | 'restore'> as Loader
}

interface Scene {
  ids: readonly string[]
  tasks?: readonly string[]
  /** Rewards of these records do not differ. */
  flat?(task: string, id: string): boolean
  /** Thrown in place of the scores. */
  failure?(id: string): Error | null
  samples?(task: string, id: string): Partial<Sample>
}

function open(input: RunInput, { ids, tasks = ['one'], flat, failure, samples }: Scene) {
  const config = resolveRun({ ...input, rl: { numGenerations: K, ...input.rl } })
  const released: string[] = []
  const encoder = {
    seconds: 0,
    items: (examples: readonly Example[]) => examples.map(({ id }) => ({ id })),
    release: (items: readonly { id: string }[]) => released.push(...items.map(({ id }) => id)),
  } as unknown as Encoder
  const score: Run['score'] = (task, replies) =>
    (replies as { id: string; k: number }[][]).map(async (group) => {
      const error = failure?.(group[0]!.id)
      if (error) throw error
      return group.map(({ id, k }) => ({ total: flat?.(task, id) ? 0.5 : k, parts: {}, counted: [] }))
    })
  const run = {
    config: { rl: config.rl, shuffleRewards: false },
    judged: new Set(),
    tasks: tasks.map((name) => taskOf(name, (id) => samples?.(name, id) ?? {})),
    roles: {
      forSampling: (fn: () => unknown) => fn(),
      asEma: (fn: () => unknown) => fn(),
      whileWhole: async (_: unknown, __: unknown, fn: () => unknown) => fn(),
    },
    world: alone,
    costs: new RecordCosts(),
    inWork: (_: unknown, fn: () => unknown) => fn(),
    score,
    entropy: initialEntropyState(config.rl),
    balance: {},
  } as unknown as Run
  const source = { length: ids.length, id: (i: number) => ids[i]!, get: async (i: number) => ({ id: ids[i]! }) }
  const loader = loaderOf(ids)
  const records = { loader, source: source as unknown as Source }
  const batches = new Batches(run, config, records, encoder, { alone: true, report: () => undefined })
  const next = async (step: number) => {
    const undo = batches.mark()
    try {
      const { batch } = await batches.next(step, {})
      for (const task of run.tasks) await batch.ready!(task)
      return batch
    } catch (error) {
      undo()
      throw error
    }
  }
  return { batches, loader, next, released }
}

type Taken = Awaited<ReturnType<ReturnType<typeof open>['next']>>
const idsOf = ({ pieces }: Taken) => pieces.map((items) => items.map(({ id }) => id).join(''))
const groupsOf = ({ groups }: Taken) => groups.map((g) => `${g.task.name} ${g.item.id}`)

test('a stored generation that the end of an epoch cut still ends its step there', async () => {
  const input = { batchSize: 1, rl: { stepsPerGeneration: 3, gradientAccumulationSteps: 3, numIterations: 2 } }
  const scene = { ids: ['a', 'b'] }
  const whole = open(input, scene)
  assert.deepEqual(idsOf(await whole.next(0)), ['a', 'b'])
  const stored = (await whole.batches.state())!
  assert.deepEqual([stored.taken, stored.short], [2, true])
  const again = open(input, scene)
  await again.batches.restore(JSON.parse(JSON.stringify(stored)))
  assert.deepEqual(idsOf(await again.next(1)), ['a', 'b'], 'the second pass, and nothing of the next epoch')
  assert.equal(await again.batches.state(), null)
})

test('a stored group keeps whether its rewards differ, its advantages and its densities', async () => {
  const input = { batchSize: 2, rl: { stepsPerGeneration: 2, gradientAccumulationSteps: 1 } }
  const scene: Scene = { ids: ['a', 'b', 'c', 'd'], flat: (_, id) => id === 'c' }
  const [whole, again] = [open(input, scene), open(input, scene)]
  await whole.next(0)
  await again.batches.restore(JSON.parse(JSON.stringify(await whole.batches.state())))
  const [expected, got] = [await whole.next(1), await again.next(1)]
  const facts = (taken: Taken) => taken.groups.map((g) => [g.item.id, g.hasSignal, [...g.advantages], [...g.old!]])
  assert.deepEqual(
    facts(got).map(([id, signal]) => [id, signal]),
    [
      ['c', false],
      ['d', true],
    ],
  )
  assert.deepEqual(facts(got), facts(expected))
})

test('a step that fails after it took pieces leaves the generation as it was', async () => {
  const rl = { stepsPerGeneration: 4, gradientAccumulationSteps: 2, groupFilter: true, maxResampleTimes: 1 }
  const ids = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']
  let fails = true
  const failure = (id: string) => (fails && id === 'f' ? new Stopped() : null)
  const stopped = open({ batchSize: 1, rl }, { ids, failure, flat: (_, id) => id === 'b' || id === 'e' })
  assert.deepEqual(idsOf(await stopped.next(0)), ['a', 'c'])
  const before = [await stopped.batches.state(), stopped.loader.state()]
  await assert.rejects(stopped.next(1), Stopped)
  assert.deepEqual(await stopped.batches.state(), before[0], 'its last piece was not taken')
  assert.deepEqual(stopped.loader.state(), before[1], 'its records are not taken')
  fails = false
  assert.deepEqual(idsOf(await stopped.next(1)), ['d', 'f'])
})

test('of more groups with spread than are wanted the first are kept; where all are flat, the first of all', async () => {
  const input = { batchSize: 2, rl: { groupFilter: true, maxResampleTimes: 3 } }
  const ids = ['a', 'b', 'c', 'd', 'e', 'f']
  const uneven = open(input, { ids, tasks: ['one', 'two'], flat: (task, id) => task === 'two' && id === 'a' })
  const batch = await uneven.next(0)
  assert.deepEqual(groupsOf(batch), ['one a', 'one b', 'two b', 'two c'])
  assert.deepEqual(idsOf(batch), ['abc'], 'as many pieces as ever')
  const flat = open({ ...input, rl: { ...input.rl, maxResampleTimes: 1 } }, { ids, flat: () => true })
  assert.deepEqual(groupsOf(await flat.next(0)), ['one a', 'one b'])
  assert.deepEqual(flat.released, ['c', 'd'], 'records that nobody learns from are let go')
})

interface RepeatSampler {
  id: string
  kind: string
  input: Record<'dataset_size' | 'num_generations' | 'generation_batch_size', number> &
    Record<'num_iterations' | 'steps_per_generation' | 'gradient_accumulation_steps', number>
  expected: {
    index_order: number[]
    generates_at_micro_step: number[]
    slice_at_micro_step: number[]
    needs_old_logps: boolean
    optimizer_steps_per_epoch: number
  }
}

const golden = JSON.parse(readFileSync(new URL('../../tests/fixtures/golden/grpo.json', import.meta.url), 'utf8'))
const repeated = (golden.cases as RepeatSampler[]).filter(({ kind }) => kind === 'repeat_sampler')

test('the reference has cases of its sampler', () => assert.ok(repeated.length >= 2))

for (const { id, input, expected } of repeated)
  test(`${id}: steps take the samples of TRL's sampler, generate in the same steps and keep old log-probs alike`, async () => {
    const { gradient_accumulation_steps: accumulated, steps_per_generation: pieces } = input
    const rows = input.generation_batch_size / pieces // samples of a micro step
    const rl = {
      numIterations: input.num_iterations,
      stepsPerGeneration: pieces,
      gradientAccumulationSteps: accumulated,
    }
    assert.equal(input.num_generations, K)
    const ids = Array.from({ length: input.dataset_size }, (_, i) => `${i}`)
    const { batches } = open({ batchSize: rows / K, rl }, { ids })
    for (let step = 0; step < expected.optimizer_steps_per_epoch; step++) {
      const micro = Array.from({ length: accumulated }, (_, i) => step * accumulated + i)
      const wanted = micro.flatMap((m) => {
        const from = m * input.generation_batch_size + expected.slice_at_micro_step[m]! * rows
        return expected.index_order.slice(from, from + rows)
      })
      const { batch, fresh } = await batches.next(step, {})
      const got = batch.groups.flatMap((g) => g.samples.map(() => Number(g.item.id)))
      assert.deepEqual(got, wanted, `step ${step}`)
      const generates = micro.some((m) => expected.generates_at_micro_step.includes(m))
      assert.equal(fresh.length * K, generates ? input.generation_batch_size : 0, `step ${step}`)
      assert.ok(batch.groups.every((g) => (g.old !== null) === expected.needs_old_logps))
    }
  })

const tokens = (count: number) => ({ ids: new Int32Array(count), logps: new Float32Array(count) })
const lengths: Record<string, number> = { a: 1, b: 2, c: 3, d: 4 }

test('tokens per step are the share of the generation batch, counted for each task', async () => {
  const numItems = ({ groups, numItems }: Taken) => groups.map((g) => numItems!.get(g))
  const scene: Scene = {
    ids: Object.keys(lengths),
    tasks: ['one', 'two'],
    samples: (task, id) => tokens(task === 'one' ? lengths[id]! : 1),
  }
  const half = open({ batchSize: 1, rl: { stepsPerGeneration: 4, gradientAccumulationSteps: 2 } }, scene)
  // K (1 + 2 + 3 + 4) = 20 and K 4 = 8 tokens, of which a step takes 2 of 4 pieces
  for (const step of [0, 1]) assert.deepEqual(numItems(await half.next(step)), [10, 10, 4, 4])
  const several = open({ batchSize: 1, rl: { stepsPerGeneration: 1, gradientAccumulationSteps: 2 } }, scene)
  assert.deepEqual(numItems(await several.next(0)), [4, 8, 4, 4], 'each generation batch counts twice')
})

test('tokens of filtered groups count as decoded, a greedy answer counts once, later passes count nothing', async () => {
  const rl = { numIterations: 2, stepsPerGeneration: 1, groupFilter: true, maxResampleTimes: 3 }
  const scene: Scene = {
    ids: Object.keys(lengths),
    tasks: ['one', 'two'],
    flat: (_, id) => id === 'a',
    samples: (task, id) => ({ ...tokens(lengths[id]!), sampled: task === 'one' }),
  }
  const { batches } = open({ batchSize: 2, rl }, scene)
  // a, b, then c in place of a: K (1 + 2 + 3) sampled tokens, 1 + 2 + 3 greedy ones
  assert.equal((await batches.next(0, {})).decoded, 18)
  assert.equal((await batches.next(1, {})).decoded, 0)
})

test('groups of an older checkpoint without the index of their item find it by task, record and order', async () => {
  const rl = { stepsPerGeneration: 3, gradientAccumulationSteps: 1, groupFilter: true, maxResampleTimes: 1 }
  const scene: Scene = { ids: ['a', 'b', 'c'], tasks: ['one', 'two'], flat: (_, id) => id === 'b' }
  const [whole, again] = [open({ batchSize: 1, rl }, scene), open({ batchSize: 1, rl }, scene)]
  await whole.next(0)
  const stored = (await whole.batches.state())!
  assert.deepEqual(stored.pieces, [['a'], ['c'], ['a']], 'a was drawn again in place of b')
  const older = stored.groups.map(({ item: _, ...group }, n) => ({ ...group, advantages: packed(n) }))
  await again.batches.restore(JSON.parse(JSON.stringify({ ...stored, groups: older })))
  const taken = async (step: number) => (await again.next(step)).groups.map((g) => [g.item.id, g.advantages[0]])
  const at = (task: string, n: number) => stored.groups.findIndex((g) => g.task === task && g.item === n)
  for (const [step, id] of [
    [1, 'c'],
    [2, 'a'],
  ] as const) {
    const expected = ['one', 'two'].map((task) => [id, at(task, step)])
    assert.deepEqual(await taken(step), expected)
  }
})

function packed(value: number): string {
  return Buffer.from(new Float64Array([value, value]).buffer).toString('base64')
}
