// What a step of the demo costs, in ms of processor time, one thread: learning from 8 records of both loops in one pass against a pass
// for each record, sampling and answering with adapters merged against adapters apart, and 8 held-out records evaluated for the second
// time, with cached features against recomputed ones. Paired in one run; the ways alternate.
import { fileURLToPath } from 'node:url'
import { openSource } from '../src/data/index.ts'
import { withMergedLora } from '../src/nn/index.ts'
import type { Answer, ScoredRow } from '../src/rewards/index.ts'
import { type Batch, type Run, sampleAndScore, step } from '../src/rl/index.ts'
import {
  disposeModel,
  Encoder,
  type Host,
  Learner,
  openModel,
  type RunConfig,
  resolveRun,
  runOf,
} from '../src/run/index.ts'
import { type TaskKind, taskKinds } from '../src/tasks/index.ts'
import { setThreads } from '../src/tensor/index.ts'
import { type BenchRow, inTurn } from './bench.ts'

const [numRecords, rounds] = [8, 5]

function settings(): RunConfig {
  return resolveRun({
    model: fileURLToPath(new URL('../assets/miniature', import.meta.url)),
    dataPath: 'scenes:64',
    device: 'cpu',
    dtype: 'float32',
    threads: 1,
    batchSize: numRecords,
    data: { workers: 0 },
    rl: { numGenerations: 6, maxCompletionLength: 24 },
    lora: { rank: 16, alpha: 32 },
    sampling: { weights: 'exact' },
  })
}

/** Rewards that differ from sample to sample: what they are does not matter to the clock. */
const host: Pick<Host, 'score'> = {
  score: async (_, groups: readonly (readonly Answer[])[]) => {
    const row = (total: number): ScoredRow => ({ total, parts: {}, counted: [], dropped: [] })
    return { rows: groups.map((answers) => answers.map((_, k) => row(k % 3))), metrics: {} }
  },
}

async function processorMs(work: () => unknown): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

const compare = (name: string, ours: () => Promise<unknown>, other: () => Promise<unknown>): Promise<BenchRow> =>
  inTurn({ name, unit: 'ms of processor time', rounds }, processorMs, ours, other)

export async function run(): Promise<BenchRow[]> {
  setThreads(1)
  const config = settings()
  const family = openModel(config)
  const learner = new Learner(family, config)
  const encoder = new Encoder(family, config)
  const kind = taskKinds.cycle as TaskKind<RunConfig>
  const exact: Run = runOf(config, kind.build(family, config), learner, encoder, host)
  const apart = learner.forSampling.bind(learner)
  const sampled = (merged: boolean) => () => {
    learner.forSampling = merged ? (fn) => withMergedLora(family.module, fn) : apart
    return sampleAndScore(exact, batch)
  }
  const source = await openSource(config.dataPath, config.data)
  const items = encoder.items(await Promise.all(Array.from({ length: numRecords }, (_, i) => source.get(i))))
  await source.close()
  encoder.inWork(items, () => {
    for (const task of exact.tasks) if (task.opens) task.open(items)
  })
  const batch: Batch = { draw: { seed: 1, step: 0 }, pieces: [items] }
  const groups = await sampleAndScore(exact, batch)
  const learn = (pieces: Batch['pieces']) => () =>
    step(exact, { ...batch, pieces, groups: groups.map((g) => ({ ...g, reference: null })) }, 0)
  const evaluator = kind.evaluator(family, config)
  const examples = items.map((item) => item.example)
  const evaluated = (way: 'again' | 'with') => async () => encoder[way](examples, (some) => evaluator.score(some))
  const rows = [
    await compare('8 records of both loops learned from, one pass', learn([items]), learn(items.map((item) => [item]))),
    await compare('8 records sampled and answered, adapters merged', sampled(true), sampled(false)),
    await compare('8 held-out records evaluated again', evaluated('again'), evaluated('with')),
  ]
  encoder.close()
  learner.dispose()
  disposeModel(family)
  return rows
}
