// A whole step of both loops by phase: batch 4, K 4, captions of 128 tokens, mask answers of 12 tokens. Each phase waits for the GPU
// before and after it.
import type { Example } from '../../src/data/index.ts'
import type { Sa2VAFamily } from '../../src/models/index.ts'
import { type Batch, type JointPass, type Run, step, type Task } from '../../src/rl/index.ts'
import { Encoder, type Learner, type RunConfig, runOf } from '../../src/run/index.ts'
import { type CycleSample, type TaskKind, taskKinds } from '../../src/tasks/index.ts'
import { cuda } from '../../src/tensor/index.ts'
import { type BenchRow, median, row } from '../bench.ts'
import { now, peakGiB, rankRewards, reservedGiB, resetPeak } from './random-model.ts'

const maskTokens = 12
/** The substitute tokenizer has one token per letter, so texts are cut to the length of a caption. */
const captionLetters = 128

const cut = (s: CycleSample): CycleSample => ({ ...s, caption: s.caption?.slice(0, captionLetters) ?? null })

/** Milliseconds by phase. Time between two phases counts as the phase that the first one names in `leaves`. */
class Phases {
  readonly ms = new Map<string, number>()
  fenced = false
  #between: { name: string; from: number } | null = null

  time<R>(name: string, fn: () => R, leaves?: string): R {
    if (!this.fenced) return fn()
    const from = now()
    if (this.#between) this.#add(this.#between.name, from - this.#between.from)
    this.#between = null
    const out = fn()
    const to = now()
    this.#add(name, to - from)
    if (leaves) this.#between = { name: leaves, from: to }
    return out
  }

  #add(name: string, ms: number): void {
    this.ms.set(name, (this.ms.get(name) ?? 0) + ms)
  }
}

/** The same object with some of its methods timed. */
function timing<T extends object>(of: T, wrapped: Record<string, (call: () => unknown) => unknown>): T {
  return new Proxy(of, {
    get: (target, key) => {
      const value = Reflect.get(target, key, target) as unknown
      if (typeof value !== 'function') return value
      const method = value.bind(target) as (...args: unknown[]) => unknown
      const around = wrapped[String(key)]
      return around ? (...args: unknown[]) => around(() => method(...args)) : method
    },
  })
}

/** The tasks of a run, but captions have full length and mask answers few tokens, as with trained models. */
function timedTasks(family: Sa2VAFamily, config: RunConfig, phases: Phases, inReference: () => boolean): Task[] {
  const { build } = taskKinds.cycle as TaskKind<RunConfig>
  const short = build(family, { ...config, rl: { ...config.rl, maxCompletionLength: maskTokens } })
  return build(family, config).map((long, i) => {
    const [sampler, answerer] = long.name === 'loop1' ? [long, short[i]!] : [short[i]!, long]
    const { name } = long
    const own: Record<string, unknown> = {
      open: (items: never) => [long, short[i]!].map((task) => task.open(items))[0]!,
      sample: (items: never, draw: never) =>
        sampler.sample(items, draw).map((group) => (group as CycleSample[]).map(cut)),
      answer: (items: never, groups: never) => answerer.answer(items, groups),
    }
    const task = new Proxy(sampler, {
      get: (target, key) => {
        const value = (own[String(key)] ?? Reflect.get(target, key, target)) as unknown
        return typeof value === 'function' ? (value.bind(target) as unknown) : value
      },
    })
    const densities = (of: string) => (call: () => unknown) =>
      inReference()
        ? phases.time(`learn ${of}: reference`, call)
        : phases.time(`learn ${of}: forward`, call, `learn ${of}: losses, backward, metrics`)
    const timed = timing(task, {
      sample: (call) => phases.time(`sample ${name}`, call),
      answer: (call) => phases.time(`answer ${name}`, call),
      densities: densities(name),
    })
    const both = ({ with: same, prepare }: JointPass): JointPass => {
      const pass = (score: ReturnType<typeof prepare>) => () => densities('both')(score) as ReturnType<typeof score>
      return { with: same, prepare: (parts) => pass(prepare(parts)) }
    }
    const joint = () => task.joint && both(task.joint)
    return new Proxy(timed, { get: (target, key) => (key === 'joint' ? joint() : Reflect.get(target, key)) })
  })
}

function timedLearner(learner: Learner, phases: Phases, reference: (on: boolean) => void): Learner {
  const optim = timing(learner.optim, {
    gradientNorms: (call) => phases.time('norms', call),
    clipGradNorm: (call) => phases.time('clip', call),
    step: (call) => phases.time('AdamW', call),
  })
  const timed = timing(learner, {
    follow: (call) => phases.time('EMA', call),
    asReference: (call) => {
      reference(true)
      try {
        return call()
      } finally {
        reference(false)
      }
    },
  })
  return new Proxy(timed, { get: (target, key) => (key === 'optim' ? optim : Reflect.get(target, key)) })
}

export async function stepRows(
  family: Sa2VAFamily,
  learner: Learner,
  config: RunConfig,
  examples: readonly Example[],
  steps: { fenced: number; plain: number },
): Promise<BenchRow[]> {
  const phases = new Phases()
  let inReference = false
  const drawing = timing(family, {
    drawMasks: (call) => phases.time('(of it) masks drawn', call),
    finishMasks: (call) => phases.time('(of it) masks at full size', call),
  })
  const tasks = timedTasks(drawing, config, phases, () => inReference)
  const timed = timedLearner(learner, phases, (on) => {
    inReference = on
  })
  const encoder = new Encoder(family, config, { store: null })
  const bench = runOf(config, tasks, timed, encoder, rankRewards)
  const prepared = examples.map((e) => ({ ...e, prepared: family.prepare(e.image, { maxTiles: 3 }) }))
  const one = (number: number) => oneStep(bench, encoder, prepared, number, phases)
  const first = encoder.items(prepared)
  encoder.inWork(first, () => {
    for (const task of tasks) if (task.opens) task.open(first as never)
  })
  encoder.release(first)
  await one(0)
  resetPeak()
  const plain: number[] = []
  const reserved: number[] = []
  for (let i = 0; i < steps.plain; i++) {
    plain.push(await one(1 + i))
    reserved.push(reservedGiB())
  }
  const peak = peakGiB()
  phases.fenced = true
  const fenced: number[] = []
  for (let i = 0; i < steps.fenced; i++) fenced.push(await one(1000 + i))
  const half = Math.ceil(plain.length / 2)
  const rows = [
    row('step, both loops', median(plain), 1900, 'ms'),
    row('  slowest of them', Math.max(...plain), null, 'ms'),
    row('  second half, the first', median(plain.slice(-half)), median(plain.slice(0, half)), 'ms'),
    row('  peak', peak, 28, 'GiB'),
    row('  reserved after the first of them', reserved[0]!, null, 'GiB'),
    row('  reserved after the last of them', reserved.at(-1)!, null, 'GiB'),
    row('step, each phase waiting for the GPU', median(fenced), null, 'ms'),
  ]
  return [...rows, ...[...phases.ms].map(([name, ms]) => row(`  ${name}`, ms / steps.fenced, null, 'ms'))]
}

async function oneStep(
  bench: Run,
  encoder: Encoder,
  examples: readonly Example[],
  number: number,
  phases: Phases,
): Promise<number> {
  const from = now()
  const items = encoder.items(examples)
  phases.time('encode', () => encoder.inWork(items, () => undefined))
  const batch: Batch = { draw: { seed: 0, step: number }, pieces: [items] }
  await step(bench, batch, 0) // learning rate 0: after updates random weights would no longer write [SEG], and a step would be shorter
  cuda.synchronize()
  const spent = now() - from
  encoder.release(items)
  return spent
}
