// Which records a step is given, without a model: a task of a few numbers, a loader over a list.
import assert from 'node:assert/strict'
import test from 'node:test'
import type { Example, Loader, Source } from '../data/index.ts'
import { alone } from '../distributed/index.ts'
import { initialEntropyState, type Run, type Sample, Stopped, type Task } from '../rl/index.ts'
import { zeros } from '../tensor/index.ts'
import { Batches } from './batches.ts'
import { type RunInput, resolveRun } from './config.ts'
import type { Encoder } from './features.ts'

const K = 2

function taskOf(name: string): Task {
  const sample = (k: number): Sample => ({
    ids: Int32Array.of(k, 1),
    text: `${k}`,
    finished: true,
    logps: new Float32Array(2),
  })
  return {
    name,
    weight: 1,
    beta: 0,
    sample: (items) => items.map(() => [sample(0), sample(1)]),
    answer: (items, groups) => groups.map((group, b) => group.map((_, k) => ({ id: items[b]!.id, k }))),
    densities: (_, groups) => groups.map(() => ({ logps: zeros([K, 2]), entropies: null })),
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
}

function open(input: RunInput, { ids, tasks = ['one'], flat, failure }: Scene) {
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
    tasks: tasks.map(taskOf),
    roles: { forSampling: (fn: () => unknown) => fn(), asEma: (fn: () => unknown) => fn() },
    world: alone,
    inWork: (_: unknown, fn: () => unknown) => fn(),
    score,
    entropy: initialEntropyState(config.rl),
    balance: {},
  } as unknown as Run
  const source = { length: ids.length, id: (i: number) => ids[i]!, get: async (i: number) => ({ id: ids[i]! }) }
  const loader = loaderOf(ids)
  const records = { loader, source: source as unknown as Source }
  const batches = new Batches(run, config, records, encoder, { alone: true, tell: () => undefined })
  const next = async (step: number) => (await batches.next(step, {})).batch
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
  stopped.loader.restore(before[1] as never)
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
