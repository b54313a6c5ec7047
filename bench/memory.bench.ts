// Peak memory of a whole step of both loops at released shapes with random bfloat16 weights; `other` is the prediction of `roundtrip plan`.
// Without a GPU the tiny shape on the CPU, which shows that it runs. ROUNDTRIP_BENCH_SHAPES: names with commas (1b,4b).
// ROUNDTRIP_BENCH_FROZEN: only exact, int8 or nf4.
import { useKernels } from '../src/kernels/index.ts'
import { decodePool, TrainingLayers } from '../src/llm/index.ts'
import { modelSizes, type Sa2VAFamily } from '../src/models/index.ts'
import { type FrozenForm, frozenForms } from '../src/nn/index.ts'
import { type Batch, sampleAndScore, step } from '../src/rl/index.ts'
import { Encoder, Learner, planMemory, resolveRun, runOf } from '../src/run/index.ts'
import { type TaskKind, taskKinds } from '../src/tasks/index.ts'
import { cuda, emptyCache } from '../src/tensor/index.ts'
import type { ShapeName } from '../tools/lib/checkpoint-shapes.ts'
import { type BenchRow, row } from './bench.ts'
import {
  onGpu,
  peakGiB,
  placement,
  question,
  randomExample,
  randomModel,
  rankRewards,
  resetPeak,
  speakingFamily,
} from './gpu/random-model.ts'

interface Case {
  batchSize: number
  K: number
  tiles: number
  checkpointing: boolean
  kernels: 'auto' | 'off'
  frozenWeights: FrozenForm
}

const plain = { batchSize: 1, K: 4, tiles: 3, checkpointing: true, kernels: 'auto', frozenWeights: 'exact' } as const
const exactCases: Case[] = [
  { ...plain, batchSize: 4 },
  { ...plain, K: 8 },
  { ...plain, tiles: 12 },
  { ...plain, batchSize: 4, checkpointing: false },
  { ...plain, kernels: 'off' },
]
const casesOf = (frozenWeights: FrozenForm): Case[] =>
  frozenWeights === 'exact'
    ? exactCases
    : [
        { ...plain, frozenWeights },
        { ...plain, frozenWeights, batchSize: 2 },
        { ...plain, frozenWeights, batchSize: 2, tiles: 12 },
      ]

export async function run(): Promise<BenchRow[]> {
  const shapes = (process.env.ROUNDTRIP_BENCH_SHAPES ?? '1b,4b').split(',') as ShapeName[]
  const rows: BenchRow[] = []
  const forms = frozenForms.filter((form) => (process.env.ROUNDTRIP_BENCH_FROZEN ?? form) === form)
  for (const shape of shapes) for (const form of forms) rows.push(...(await ofShape(shape, casesOf(form))))
  return rows
}

const settings = (c: Case) =>
  resolveRun({
    sampling: { weights: 'exact' },
    model: 'random',
    dataPath: 'scenes:1',
    ...placement,
    maxTiles: c.tiles,
    batchSize: c.batchSize,
    checkpointing: c.checkpointing,
    frozenWeights: c.frozenWeights,
    loop1: { question },
    rl: { numGenerations: c.K, maxCompletionLength: onGpu ? 128 : 16 },
    ...(onGpu ? {} : { lora: { rank: 8, alpha: 16 } }),
  })
type Settings = ReturnType<typeof settings>

async function ofShape(shape: ShapeName, cases: readonly Case[]): Promise<BenchRow[]> {
  const loaded = randomModel(shape, cases[0]!.frozenWeights)
  const family = speakingFamily(loaded, randomExample(0))
  const learner = new Learner(family, settings(cases[0]!))
  const rows: BenchRow[] = []
  for (const c of cases) {
    const config = settings(c)
    const measured = await peakOf(family, learner, config, c)
    const kept = c.checkpointing ? '' : ', no checkpointing'
    const stored = c.frozenWeights === 'exact' ? '' : `, frozen matrices in ${c.frozenWeights}`
    const name = `${shape}, batch ${c.batchSize}, K ${c.K}, ${c.tiles} tiles${kept}${stored}, kernels ${c.kernels}`
    rows.push(row(name, measured, planned(family, config, c), 'GiB'))
  }
  TrainingLayers.release(family.model.decoder)
  decodePool.clear()
  learner.dispose()
  for (const t of family.module.parameters().values()) t.dispose()
  emptyCache()
  return rows
}

function planned(family: Sa2VAFamily, config: Settings, { kernels }: Case): number {
  const gpu = { bytes: onGpu ? cuda.memory(0).total : 0, kernels: kernels === 'auto' }
  return planMemory(modelSizes(family.config as Record<string, unknown>), config, gpu).peak / 2 ** 30
}

async function peakOf(family: Sa2VAFamily, learner: Learner, config: Settings, c: Case): Promise<number> {
  useKernels(c.kernels)
  decodePool.clear()
  const { build } = taskKinds.cycle as TaskKind<Settings>
  const encoder = new Encoder(family, config, { store: null })
  const bench = runOf(config, build(family, config), learner, encoder, rankRewards)
  const items = encoder.items(Array.from({ length: c.batchSize }, (_, i) => randomExample(i, c.tiles)))
  resetPeak()
  encoder.inWork(items, () => {
    for (const task of bench.tasks) if (task.opens) task.open(items as never)
  })
  const batch: Batch = { draw: { seed: 0, step: 0 }, pieces: [items] }
  await step(bench, { ...batch, groups: await sampleAndScore(bench, batch) }, 1e-6)
  encoder.release(items)
  return peakGiB()
}
