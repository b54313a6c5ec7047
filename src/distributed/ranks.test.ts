import assert from 'node:assert/strict'
import { hostname } from 'node:os'
import { test } from 'node:test'
import { type Tensor, tensor, tidy } from '../tensor/index.ts'
import { layBuckets } from './buckets.ts'
import { Exchange } from './exchange.ts'
import { Disagreement, Divergence } from './failure.ts'
import { requireSameLayout, requireSameSettings, requireSameValues } from './handshake.ts'
import type { Link } from './link.ts'
import { parseBeat, rootCause, type Sighting } from './root-cause.ts'
import { alone, type World } from './world.ts'

/** Runs `call` on every rank of a world whose ranks gather in step; returns what each one throws. */
async function onRanks(size: number, call: (world: World, rank: number) => Promise<void>): Promise<unknown[]> {
  let waiting: { value: unknown; done: (all: unknown[]) => void }[] = []
  const gather = (rank: number) => (value: unknown) =>
    new Promise<unknown[]>((done) => {
      waiting[rank] = { value, done }
      if (Object.keys(waiting).length < size) return
      const all = waiting
      waiting = []
      for (const one of all) one.done(all.map((other) => other.value))
    })
  const rankOf = (rank: number) => ({ ...alone, rank, size, gather: gather(rank) }) as unknown as World
  const failure = (rank: number) =>
    call(rankOf(rank), rank).then(
      () => null,
      (error: unknown) => error,
    )
  return Promise.all(Array.from({ length: size }, (_, rank) => failure(rank)))
}

const messages = (errors: readonly unknown[]) => new Set(errors.map((e) => (e instanceof Error ? e.message : `${e}`)))

test('lists of tensors that differ are named by their first difference, the end of a list included', async () => {
  const lists = (...all: string[]) => onRanks(all.length, (world, rank) => requireSameLayout(world, all[rank]!))
  assert.deepEqual(await lists('a\nb', 'a\nb'), [null, null])
  const [text, ...others] = messages(await lists('a\nb', 'a\nb', 'a\nb\nc'))
  assert.deepEqual(others, [])
  assert.match(text!, /^tensors of rank 2: entry 3 of 3: expected no more tensors, as on rank 0, got c\./)
  assert.match([...messages(await lists('a\nb', 'a'))][0]!, /entry 2 of 1: expected b, got no more tensors\./)
  assert.match([...messages(await lists('a\nb', 'x\nb'))][0]!, /rank 1: entry 1 of 2: expected a, got x\./)
})

test('settings are compared by key, whatever their order', async () => {
  const all = [{ rl: { beta: 0.1, topK: 5 } }, { rl: { topK: 5, beta: 0.1 } }]
  assert.deepEqual(await onRanks(2, (world, rank) => requireSameSettings(world, all[rank]!)), [null, null])
  const other = [{ rl: { beta: 0.1 } }, { rl: { beta: 0.2 } }]
  const errors = await onRanks(2, (world, rank) => requireSameSettings(world, other[rank]!))
  assert.ok(errors.every((e) => e instanceof Disagreement))
  assert.match([...messages(errors)][0]!, /^settings of rank 1: rl\.beta: expected 0\.1, got 0\.2\./)
})

test('weights that differ are named with the rank', async () => {
  const weights = (last: number) =>
    new Map([
      ['a', tensor([1, 2])],
      ['b', tensor([3, last])],
    ])
  const errors = await onRanks(3, (world, rank) => requireSameValues(world, weights(rank === 2 ? 5 : 4), 'step 7'))
  assert.ok(errors.every((e) => e instanceof Divergence))
  assert.match([...messages(errors)][0]!, /^step 7: b of rank 2 is not that of rank 0/)
})

const beat = (rank: number) => ({ rank, step: 3, phase: 'learn' })
const here = { host: hostname(), pid: process.pid }
const calm: Sighting = {
  notes: [],
  beats: [beat(0), beat(1)],
  peers: [here, here],
  silent: [0, 0],
  beatSeconds: 5,
}

test('the cause of a failure is a note of another rank, then a process that ended, then a silent one', () => {
  const note = (rank: number) => ({ rank, step: 7, phase: 'rollout', message: 'no memory' })
  assert.equal(rootCause(calm, 0, 'reset'), 'reset')
  assert.equal(rootCause({ ...calm, notes: [note(0)] }, 0, 'reset'), 'reset', "a rank's own note is not a cause")
  const both = { ...calm, notes: [note(0), note(1)] }
  const name = `rank 1 on ${hostname()}`
  assert.equal(rootCause(both, 0, 'reset'), `${name} failed in step 7 (rollout): no memory`)
  const ended = { ...calm, peers: [here, { ...here, pid: 2 ** 22 + 1 }] }
  const gone = `${name} ended without a message (killed?); last phase of rank 1: learn, step 3; reset`
  assert.equal(rootCause(ended, 0, 'reset'), gone)
  const left = { ...note(1), message: 'rank 2 silent', afterPeer: true }
  assert.equal(
    rootCause({ ...ended, notes: [left] }, 0, 'reset'),
    'rank 2 silent',
    'a rank that names its cause is not the cause',
  )
  const third = { ...ended, peers: [...ended.peers, here], silent: [0, 0, 11_000] }
  assert.match(rootCause({ ...third, notes: [left] }, 0, 'reset'), /^rank 2 on \S+ silent for 11 s/)
  const elsewhere = { ...calm, peers: [here, { host: 'another', pid: 2 ** 22 + 1 }] }
  assert.equal(rootCause(elsewhere, 0, 'reset'), 'reset', 'a process of another host cannot be seen')
  const after = (ms: number) => rootCause({ ...elsewhere, silent: [0, ms] }, 0, 'reset')
  assert.equal(after(9_000), 'reset', 'one late beat is not silence')
  assert.match(after(11_000), /^rank 1 on another silent for 11 s \(.*\); last phase of rank 1: learn, step 3; reset$/)
})

test('a beat has time, step and a phase of several words', () => {
  assert.deepEqual(parseBeat(4, '1700 12 save the checkpoint'), {
    rank: 4,
    step: 12,
    phase: 'save the checkpoint',
  })
})

test('buckets are filled up to their limit, in order', () => {
  const sizes = [2, 2, 1, 5, 1]
  const tensors = new Map(sizes.map((n, i) => [`t${i}`, tensor(new Float32Array(n))]))
  const laid = layBuckets(tensors, 4)
  assert.deepEqual(
    laid.map((bucket) => bucket.slots.map(({ name, offset }) => `${name}@${offset}`)),
    [['t0@0', 't1@2'], ['t2@0'], ['t3@0'], ['t4@0']],
  )
  assert.deepEqual(
    laid.map((bucket) => bucket.numel),
    [4, 1, 5, 1],
  )
})

test('messages of any length arrive whole, also those that just fit into a frame or just do not', async () => {
  const allGather = async (input: Tensor, outputs: readonly Tensor[]) => tidy(() => outputs.forEach((t) => void t.copy_(input))) // biome-ignore format: one line
  const exchange = new Exchange({ place: { rank: 0, size: 2 }, allGather } as unknown as Link)
  for (const length of [0, 1, 487, 488, 489, 511, 512, 513, 2000]) {
    const message = Uint8Array.from({ length }, (_, i) => 1 + (i % 255))
    const [a, b] = await exchange.all('gather', message)
    assert.deepEqual([[...a!], [...b!]], [[...message], [...message]], `${length} bytes`)
  }
  exchange.dispose()
})
