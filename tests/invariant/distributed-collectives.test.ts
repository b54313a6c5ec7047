import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { freePort, runRanks } from './distributed-ranks.ts'
import { valueAt } from './distributed-work.ts'

interface Found {
  sum: number[]
  long: number
  gather: { rank: number; text: string }[]
  odd: string[][]
  agree: boolean[]
}

/** What each rank said: four results of `collectives` unless alone, then one of each further scenario. */
async function collected(size: number, scenarios: string, port?: number) {
  const ended = await runRanks(size, scenarios, { port })
  for (const end of ended) assert.equal(end.code, 0, end.stderr)
  return ended.map((end) => end.results)
}

/** One start for several tests. */
const started = new Map<number, Promise<unknown[][]>>()
function together(size: 1 | 2 | 4): Promise<unknown[][]> {
  const scenarios = size === 1 ? 'regression,ddp' : `collectives,regression,ddp${size === 2 ? ',gaps,held' : ''}`
  started.set(size, started.get(size) ?? collected(size, scenarios))
  return started.get(size)!
}

async function resultsOf(size: 1 | 2 | 4, scenario: 'regression' | 'ddp' | 'gaps' | 'held'): Promise<unknown[]> {
  const at = ['regression', 'ddp', 'gaps', 'held'].indexOf(scenario) + (size === 1 ? 0 : 4)
  return (await together(size)).map((results) => results[at])
}

const meetings = [
  { size: 2, where: 'in a file' },
  { size: 3, where: 'at a server' },
  { size: 4, where: 'in a file' },
] as const
for (const { size, where } of meetings) {
  test(`${size} processes that meet ${where} get the sums written out here, the same bits on every rank`, async () => {
    const all = size === 3 ? await collected(size, 'collectives', await freePort()) : await together(size)
    const ranks = all.map((results) => results.slice(0, 4))
    for (const results of ranks) assert.deepEqual(results, ranks[0])
    const [control, gradients, sent, flights] = ranks[0] as [
      Found,
      Record<string, number[] | null>,
      Record<string, number[]>,
      { flights: number[] },
    ]
    const numbers = Array.from({ length: size }, (_, r) => r)
    const total = (of: (rank: number) => number) => numbers.reduce((sum, r) => sum + of(r), 0)
    assert.deepEqual(control.sum, [
      size,
      total((r) => r),
      numbers.slice(1).reduce((sum, r) => sum + 0.1 * (r + 1), 0.1),
    ])
    assert.equal(
      control.long,
      total((r) => r + 299),
    )
    assert.deepEqual(
      control.gather,
      numbers.map((rank) => ({ rank, text: 'x'.repeat(rank * 400) })),
    )
    assert.deepEqual(
      control.odd,
      numbers.map((rank) => ['NaN', String(Math.fround(0.1 * rank))]),
    )
    assert.deepEqual(control.agree, [false, true, true])
    gradients['a']!.forEach((value, i) => {
      const exact = total((r) => valueAt(r, i))
      assert.ok(
        Math.abs(value - exact) <= 4e-7 * total((r) => Math.abs(valueAt(r, i))),
        `element ${i}: ${value}, ${exact}`,
      )
    })
    assert.deepEqual(gradients['onlyOne'], [1, 2, 3])
    assert.equal(gradients['nowhere'], null)
    assert.deepEqual(
      sent['weights'],
      Array.from({ length: 10 }, (_, i) => valueAt(1, i)),
    )
    assert.deepEqual(sent['steps'], [41])
    assert.deepEqual(
      flights.flights,
      Array.from({ length: 64 }, (_, i) => size * i + total((r) => r)),
    )
  })
}

test('a mean over rows dealt to 1, 2 or 4 processes trains the same weights', async () => {
  const found = new Map<number, number[]>()
  for (const size of [1, 2, 4] as const) {
    const results = await resultsOf(size, 'regression')
    for (const result of results) assert.deepEqual(result, results[0])
    found.set(size, results[0] as number[])
  }
  const single = found.get(1)!
  for (const size of [2, 4]) {
    found.get(size)!.forEach((value, i) => {
      assert.ok(Math.abs(value - single[i]!) < 1e-6 * Math.abs(single[i]!), `${size}: ${value}, ${single[i]}`)
    })
  }
})

test('20 steps give the weights of torch DistributedDataParallel with 1, 2 and 4 processes', async () => {
  const golden = JSON.parse(readFileSync(new URL('../fixtures/golden/ddp/weights.json', import.meta.url), 'utf8')) as {
    torch: string
    weights: Record<string, number[][]>
  }
  let sameKernels = false // another torch or processor rounds differently in one process too; then sums cannot be judged to the bit
  for (const size of [1, 2, 4] as const) {
    const found = ((await resultsOf(size, 'ddp'))[0] as number[][]).flat()
    const wanted = golden.weights[size]!.flat()
    if (size === 1) sameKernels = isDeepStrictEqual(found, wanted)
    else if (sameKernels) assert.deepEqual(found, wanted, `${size} processes`)
    found.forEach((value, i) => void assert.ok(Math.abs(value - wanted[i]!) < 1e-6, `${size}: ${value}, ${wanted[i]}`))
  }
})

test('the event loop turns while gradients travel', async () => {
  for (const result of await resultsOf(2, 'gaps')) {
    const { ticks } = result as { ticks: number; longest: number; total: number }
    assert.ok(ticks >= 10, `${ticks} ticks`) // waiting on the thread gives at most one for each of the five sums
  }
})

test('a rank that waits for another keeps its timers going', async (t) => {
  const [found] = (await resultsOf(2, 'held')) as { held: number; idle: number }[]
  t.diagnostic(`longest gap ${found!.held.toFixed(1)} ms, beside nothing ${found!.idle.toFixed(1)} ms`)
  const bound = Math.max(250, 4 * found!.idle) // a machine that leaves a process standing does so beside nothing too
  assert.ok(found!.held <= bound, `${found!.held} ms, beside nothing ${found!.idle} ms`)
})
