// What a rank does in the tests of several processes; started by distributed-ranks.ts.
import { existsSync, writeFileSync } from 'node:fs'
import { messageOf } from '../../src/core/index.ts'
import {
  exitCodeOf,
  joinWorld,
  ownersOf,
  readRank,
  requireSameValues,
  shareOwned,
  type World,
  wholeState,
} from '../../src/distributed/index.ts'
import { adamwOf, type OptimConfig } from '../../src/optim/index.ts'
import { aten, backward, keep, noGrad, type Tensor, tensor, tidy } from '../../src/tensor/index.ts'

const beat = Number(process.env['TEST_BEAT'] ?? 1)

const say = (value: unknown) => process.stdout.write(`${typeof value === 'string' ? value : JSON.stringify(value)}\n`)

/** A value that depends on the rank and the place alone, with all bits of a float32 in use. */
export const valueAt = (rank: number, i: number) => Math.fround(Math.sin(1 + rank * 7.3 + i * 0.37) * 3)

function vector(rank: number, n: number): Tensor {
  return tensor(Float32Array.from({ length: n }, (_, i) => valueAt(rank, i)))
}

function withGradient(grad: Tensor): Tensor {
  const parameter = tensor(new Float32Array(grad.numel)).requiresGrad_()
  parameter.setGrad(grad)
  return parameter
}

const gradientOf = (t: Tensor) => tidy(() => t.grad()?.numbers() ?? null)

async function collectives(world: World): Promise<void> {
  const { rank } = world
  say({
    sum: await world.sum([1, rank, 0.1 * (rank + 1)]),
    long: (await world.sum(Array.from({ length: 300 }, (_, i) => rank + i))).at(-1),
    gather: await world.gather({ rank, text: 'x'.repeat(rank * 400) }),
    odd: (await world.gather([Number.NaN, Float32Array.of(0.1 * rank)])).map((all) => all.map(String)),
    agree: await world.agree([false, rank === 1, true]),
  })
  const a = withGradient(vector(rank, 1003))
  const onlyOne = tensor(new Float32Array(3)).requiresGrad_()
  if (rank === 1) onlyOne.setGrad(tensor([1, 2, 3]))
  const nowhere = tensor(new Float32Array(2)).requiresGrad_()
  await world.sumGradients(
    new Map([
      ['a', a],
      ['onlyOne', onlyOne],
      ['nowhere', nowhere],
    ]),
  )
  say({ a: gradientOf(a), onlyOne: gradientOf(onlyOne), nowhere: gradientOf(nowhere) })
  const sent = new Map([
    ['weights', vector(rank, 10)],
    ['steps', tensor([rank + 40], { dtype: 'int64' })],
  ])
  await world.broadcast(sent, 1)
  say({ weights: sent.get('weights')!.numbers(), steps: sent.get('steps')!.numbers() })
  await world.barrier()
  const flights = Array.from({ length: 64 }, (_, i) => world.sum([i + rank]))
  say({ flights: (await Promise.all(flights)).flat() })
}

/** Timer gaps while large gradients travel. */
async function gaps(world: World): Promise<void> {
  const parameters = new Map([['a', withGradient(tensor(new Float32Array(8_000_000).fill(world.rank + 1)))]])
  await world.sumGradients(parameters)
  let longest = 0
  let ticks = 0
  let last = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
    ticks++
  }, 2)
  const startedAt = performance.now()
  for (let i = 0; i < 5; i++) await world.sumGradients(parameters)
  clearInterval(timer)
  say({ longest, ticks, total: performance.now() - startedAt })
}

/** The longest gap between `count` ticks of a timer of 2 ms. */
async function longestGap(count: number): Promise<number> {
  let longest = 0
  for (let tick = 0; tick < count; tick++) {
    const from = performance.now()
    await new Promise((done) => setTimeout(done, 2))
    longest = Math.max(longest, performance.now() - from)
  }
  return longest
}

/**
 * A sum that is delayed: rank 1 joins it only after rank 0, which waits in it, has seen 20 ticks of its timer. An event loop that
 * blocks while it waits never opens the gate. The shortest of ten longest gaps excludes the machine's other work.
 */
async function held(world: World): Promise<void> {
  const found = { held: Number.POSITIVE_INFINITY, idle: Number.POSITIVE_INFINITY }
  for (let round = 0; round < 10; round++) {
    const gate = `${process.env['ROUNDTRIP_STORE']}-gate-${round}`
    if (world.rank === 1) while (!existsSync(gate)) await new Promise((done) => setTimeout(done, 2))
    else found.idle = Math.min(found.idle, await longestGap(20))
    const sum = world.sum([round])
    if (world.rank === 0) {
      found.held = Math.min(found.held, await longestGap(20))
      writeFileSync(gate, '')
    }
    await sum
  }
  say(found)
}

/** Sums for ever; the test kills or stops one of the ranks. After three heartbeats the store surely has one of this phase. */
async function forever(world: World): Promise<void> {
  const parameters = new Map([['a', withGradient(vector(world.rank, 1000))]])
  const beatenAt = performance.now() + 3000 * beat
  let beaten = false
  for (let step = 1; ; step++) {
    world.note(step, 'learn')
    await world.sumGradients(parameters)
    if (step === 3) say('running')
    if (performance.now() > beatenAt && !beaten) {
      say('beaten')
      beaten = true
    }
    await new Promise((done) => setTimeout(done, 5))
  }
}

/** One rank fails in JavaScript and keeps running for a while; the others wait for it in a sum. */
async function announces(world: World): Promise<void> {
  world.note(7, 'rollout')
  await world.barrier()
  say('met')
  if (world.rank === 1) throw new Error('the judge said no')
  await world.sum([1])
}

async function leaves(world: World): Promise<void> {
  await world.barrier()
  await new Promise<void>((done) => process.stdout.write('met\n', () => done()))
  if (world.rank === 1) process.exit(0)
  await world.sum([1])
}

async function layouts(world: World): Promise<void> {
  const size = world.rank === 1 ? 12 : 10
  await world.sumGradients(
    new Map([
      ['same', withGradient(vector(0, 4))],
      ['other', withGradient(vector(0, size))],
    ]),
  )
}

async function different(world: World): Promise<void> {
  if (world.rank === 0) await world.sum([1])
  else await world.gather('hello')
}

async function diverged(world: World): Promise<void> {
  const weights = new Map([
    ['first', tensor([1, 2])],
    ['second', tensor([3, world.rank === 1 ? 4.0000005 : 4])],
  ])
  await requireSameValues(world, weights, 'step 20')
}

/** Least squares with a mean over the global batch: rows are dealt to ranks, gradients summed. 20 SGD steps. */
async function regression(world: World): Promise<void> {
  const rows = 8
  const x = Array.from({ length: rows }, (_, b) => Array.from({ length: 3 }, (_, i) => valueAt(b, i)))
  const y = Array.from({ length: rows }, (_, b) => valueAt(b, 9))
  const own = x.map((_, b) => b).filter((b) => b % world.size === world.rank)
  const weight = tensor([0.1, -0.2, 0.3]).requiresGrad_()
  for (let step = 0; step < 20; step++) {
    tidy(() => {
      const input = tensor(Float32Array.from(own.flatMap((b) => x[b]!)), [own.length, 3])
      const wanted = tensor(Float32Array.from(own.map((b) => y[b]!)))
      const error = input.mul(weight).sum([1]).sub(wanted)
      backward(error.mul(error).sum().div(rows))
    })
    await world.sumGradients(new Map([['weight', weight]]))
    tidy(() => noGrad(() => void weight.add_(weight.grad()!.mul(-0.01))))
    weight.setGrad(null)
  }
  say(weight.numbers())
}

/** 20 AdamW updates on the same gradients with the moments of all tensors, or of the own ones alone. */
async function zero(world: World): Promise<void> {
  const shapes: Record<string, number[]> = { a: [7, 5], b: [3], c: [11, 2], d: [40], e: [1] }
  const whole = makeWeights(shapes)
  const split = makeWeights(shapes)
  const owners = ownersOf(split, world.size)
  const config = { weightDecay: 0.01, adamBeta1: 0.9, adamBeta2: 0.999, adamEpsilon: 1e-8 } as OptimConfig
  const one = adamwOf(whole, config)
  const part = adamwOf(
    split,
    config,
    () => 1,
    (name) => owners.get(name) === world.rank,
  )
  for (let step = 0; step < 20; step++) {
    for (const weights of [whole, split]) giveGradients(weights, step)
    for (const optim of [one, part]) optim.clipGradNorm(0.5)
    one.step(1e-2)
    part.step(1e-2)
    await shareOwned(world, split, owners)
    for (const optim of [one, part]) optim.zeroGrad()
  }
  const moments = [...part.state()].filter(([key]) => !key.endsWith('.step')).reduce((n, [, t]) => n + t.numel, 0)
  const { tensors: state, release } = await wholeState(world, part.state(), split, owners)
  const plain = (all: ReadonlyMap<string, Tensor>) => [...all].map(([name, t]) => [name, t.numbers()])
  say({ whole: plain(whole), split: plain(split), moments, state: plain(state), expected: plain(one.state()) })
  release()
}

function makeWeights(shapes: Record<string, number[]>): Map<string, Tensor> {
  return new Map(
    Object.entries(shapes).map(([name, shape], i) => {
      const n = shape.reduce((a, b) => a * b, 1)
      const values = Float32Array.from({ length: n }, (_, j) => valueAt(i, j))
      return [name, keep(tensor(values, shape).requiresGrad_())]
    }),
  )
}

/** In the 5th step one tensor has no gradient anywhere. */
function giveGradients(weights: ReadonlyMap<string, Tensor>, step: number): void {
  let i = 0
  for (const [name, t] of weights) {
    const values = Float32Array.from({ length: t.numel }, (_, j) => valueAt(step * 10 + i, j * 3))
    if (!(step === 5 && name === 'c')) t.setGrad(tensor(values, [...t.shape]))
    i++
  }
}

/** The training of tests/fixtures/golden/ddp/generate.py. DDP sends gradients in registration order once, then as they become ready. */
async function ddp(world: World): Promise<void> {
  const value = (which: number, j: number) => Math.sin(1 + which * 7.3 + j * 0.37)
  const filled = (shape: number[], which: number) =>
    tensor(
      Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, j) => value(which, j)),
      shape,
    )
  const [rows, rate] = [8, 0.05]
  const shapes = [[5, 6], [5], [3, 5], [3]]
  const weights = shapes.map((shape, which) => filled(shape, which).requiresGrad_())
  const [w1, b1, w2, b2] = weights as [Tensor, Tensor, Tensor, Tensor]
  const own = Array.from({ length: rows }, (_, b) => b).filter((b) => b % world.size === world.rank)
  const pick = tensor(own, { dtype: 'int64' })
  const x = filled([rows, 6], 10).indexSelect(0, pick)
  const y = filled([rows, 3], 11).indexSelect(0, pick)
  const named = weights.map((t, i): [string, Tensor] => [`p${i}`, t])
  for (let step = 0; step < 20; step++) {
    tidy(() => {
      const out = x.linear(w1, { bias: b1 }).relu().linear(w2, { bias: b2 })
      backward(aten('mse_loss', out, y) as Tensor)
    })
    await world.sumGradients(new Map(step === 0 ? named : [...named].reverse()))
    for (const t of weights) {
      tidy(() => noGrad(() => void t.add_(t.grad()!, { alpha: -rate / world.size })))
      t.setGrad(null)
    }
  }
  say(weights.map((t) => t.numbers()))
}

const scenarios: Record<string, (world: World) => Promise<void>> = {
  collectives,
  gaps,
  held,
  forever,
  announces,
  leaves,
  layouts,
  different,
  diverged,
  regression,
  zero,
  ddp,
}

if (import.meta.url === new URL(process.argv[1]!, 'file:').href) {
  const collective = Number(process.env['TEST_LIMIT'] ?? 600)
  const rendezvous = Number(process.env['TEST_MEETING'] ?? 300)
  let world: World | undefined
  try {
    say('joining')
    const gate = process.env['TEST_GATE']
    while (gate && !existsSync(gate)) await new Promise((done) => setTimeout(done, 10))
    const facts = JSON.parse(process.env['TEST_FACTS'] ?? '[]') as Record<string, string>[]
    world = await joinWorld(readRank(), { collective, rendezvous, beat }, async () => facts[readRank().rank] ?? {})
    for (const name of process.argv[2]!.split(',')) await scenarios[name]!(world)
    await world.close()
  } catch (error) {
    await world?.fail(error)
    process.stderr.write(`error: ${messageOf(error)}\n`)
    process.exit(exitCodeOf(error))
  }
}
