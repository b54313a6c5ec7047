import { flagsOf } from '../config/index.ts'
import { humanBytes, Mismatch } from '../core/index.ts'
import type { ReleasedName } from '../models/index.ts'
import type { Card, MemoryPlan, RunConfig, ScalingRow } from '../run/index.ts'
import { requireRead } from './command-settings.ts'
import { processCount } from './launch.ts'
import { type RunCommand, type RunSettings, readRunSettings, runCommand } from './settings.ts'
import { aligned } from './table.ts'

const flags = flagsOf({
  'nproc N': 'memory of each of N processes, and how 2 to 64 scale',
  'step-seconds S': 'with --nproc: seconds of a step on one GPU, as measured',
  'bandwidth GB': 'with --nproc: gigabytes per second that a process sends, as measured',
  table: 'the largest batch that fits, for released models, samples, tiles and GPUs',
  json: 'print one JSON object',
})

export const help: RunCommand = {
  name: 'plan',
  about:
    'Memory of a step of both loops on a GPU, from config.json and the settings: no weight is read, no GPU is needed.',
  flags,
  example: '--model assets/miniature --batchSize 4',
}

export const command = () => runCommand(help, run)

const gib = 2 ** 30

/** Memory that programs can use on common GPUs; our kernels run on the last two. */
const cards: readonly (Card & { name: string })[] = [
  { name: '16 GB', bytes: 15.6 * gib, kernels: false },
  { name: '24 GB', bytes: 23.5 * gib, kernels: false },
  { name: '40 GB', bytes: 39.4 * gib, kernels: false },
  { name: '48 GB', bytes: 44.4 * gib, kernels: false },
  { name: 'A100 80 GB', bytes: 79.1 * gib, kernels: false },
  { name: 'H100 80 GB', bytes: 79.1 * gib, kernels: true },
  { name: 'H200 141 GB', bytes: 139.8 * gib, kernels: true },
]

/** Batches that are tried. */
const batches = [32, 16, 8, 4, 2, 1]

async function run(argv: readonly string[]): Promise<void> {
  const settings = readRunSettings(argv, flags)
  const { config, flags: given } = settings
  requireRead(given.has('table') ? 'plan --table' : 'plan', settings, config)
  if (given.has('table')) {
    process.stdout.write(await planTable(config))
    return
  }
  const processes = processCount(given, {})
  const own = { ...config, batchSize: Math.ceil(config.batchSize / processes) }
  const found = await planOf(own, processes)
  const scaling = await scalingOf(own, given)
  if (given.has('json')) process.stdout.write(`${JSON.stringify(scaling ? { gpus: found, scaling } : found)}\n`)
  else process.stdout.write(planText(own, found) + (scaling ? await scalingText(scaling) : ''))
}

async function scalingOf(config: RunConfig, given: RunSettings['flags']): Promise<ScalingRow[] | null> {
  const { planScaling, sizesOfFolder } = await import('../run/index.ts')
  const [seconds, gigabytes] = ['step-seconds', 'bandwidth'].map((name) => {
    const text = given.get(name)?.at(-1)
    if (text === undefined || (Number(text) > 0 && given.has('nproc'))) return Number(text ?? Number.NaN) || undefined
    const expected = given.has('nproc') ? 'a number above 0' : '--nproc N beside it'
    throw new Mismatch({ where: 'plan', field: `--${name}`, expected, got: text })
  })
  if (!given.has('nproc')) return null
  return planScaling(sizesOfFolder(config.model, config.lora.targets), config, seconds, gigabytes && gigabytes * 1e9)
}

async function scalingText(rows: readonly ScalingRow[]): Promise<string> {
  const { host, known, spread } = (await import('../run/index.ts')).scalingModel
  const head = ['processes', 'sent by each', 'sending', 'waiting', 'efficiency', 'times as fast']
  const body = rows.map(({ processes, bytes, sending, waiting, efficiency }) => [
    ...[String(processes), humanBytes(bytes), `${sending.toPrecision(2)} s`, `${waiting.toPrecision(2)} s`],
    ...[`${(100 * efficiency).toFixed(0)} %`, (processes * efficiency).toFixed(1)],
  ])
  return [
    'each process with these records, per step:',
    aligned([head, ...body], { right: [0, 1, 2, 3, 4, 5] }),
    `assumed unless given: ${known.seconds} s for ${known.samples} samples of a model of ${known.values / 1e9} billion values, scaled by both, at least ${known.least} s (--step-seconds);`,
    `${host.inside / 1e9} GB/s between ${host.gpus} GPUs of a host and ${host.beyond / 1e9} GB/s beyond it (--bandwidth); steps of processes differ by ${100 * spread} %`,
    '',
  ].join('\n')
}

interface Found {
  card: string
  plan: MemoryPlan
  fits: boolean
  /** The largest batch of those tried that fits; 0: none. */
  batch: number
}

async function planOf(config: RunConfig, processes: number): Promise<Found[]> {
  const { planMemory, fits, sizesOfFolder } = await import('../run/index.ts')
  const { valuesBeside } = await import('../tasks/index.ts')
  const policy = sizesOfFolder(config.model, config.lora.targets)
  const sizes = { ...policy, values: policy.values + valuesBeside(config) }
  return cards.map((card) => {
    const plan = planMemory(sizes, config, card, processes)
    const batch =
      batches.find((batchSize) => fits(planMemory(sizes, { ...config, batchSize }, card, processes), card)) ?? 0
    return { card: card.name, plan, fits: fits(plan, card), batch }
  })
}

function planText(config: RunConfig, found: readonly Found[]): string {
  const { batchSize, rl, maxTiles, checkpointing, frozenWeights } = config
  const head = ['card', 'frozen', 'trained', 'merged', 'features', 'sampling', 'learning', 'peak', 'fits']
  const body = found.map(({ card, plan: p, fits, batch }) => [
    card,
    ...[p.frozen, p.trained, p.merged, p.features, p.sampling, p.learning, p.peak].map(humanBytes),
    fits ? `yes, up to batch ${batch}` : batch > 0 ? `with batch ${batch}` : 'no',
  ])
  const settings = `batch ${batchSize}, K ${rl.numGenerations}, ${maxTiles ?? 12} tiles, ${rl.maxCompletionLength} new tokens`
  const layers = checkpointing ? 'layers computed again in backward' : 'all layers kept'
  return [
    `${config.model}: ${settings}, ${layers}${frozenWeights === 'exact' ? '' : `, frozen matrices in ${frozenWeights}`}`,
    aligned([head, ...body], { right: [1, 2, 3, 4, 5, 6, 7] }),
    'sampling and learning come on top of the rest, one after the other; peak is with the larger of them',
    '',
  ].join('\n')
}

const [tableK, tableTiles] = [
  [4, 8, 16],
  [1, 6, 12],
]

type TableSettings = Partial<Pick<RunConfig, 'frozenWeights' | 'lora'>>

/** Rows of dev/results/memory.md: the largest batch that fits, for every released model, K and limit of tiles. */
export async function planTable({ frozenWeights, lora }: TableSettings = {}): Promise<string> {
  const { planMemory, fits, resolveRun } = await import('../run/index.ts')
  const { modelSizes, releasedConfig, releasedNames } = await import('../models/index.ts')
  const head = ['model', 'K', 'tiles', 'GiB, batch 1', 'H200, batch 1', ...cards.map((card) => card.name)]
  const rows = releasedNames.flatMap((name: ReleasedName) => {
    const sizes = modelSizes(releasedConfig(name), lora?.targets)
    return tableK.flatMap((numGenerations) =>
      tableTiles.map((maxTiles) => {
        const rl = { numGenerations, maxCompletionLength: 128 }
        const config = resolveRun({ frozenWeights, lora, checkpointing: true, maxTiles, rl })
        const plan = (batchSize: number, card: Card) => planMemory(sizes, { ...config, batchSize }, card)
        const size = (card: Card) => (plan(1, card).peak / gib).toFixed(1)
        const batch = (card: Card) => batches.find((n) => fits(plan(n, card), card))
        const largest = cards.map((card) => String(batch(card) ?? '-'))
        return [name, String(numGenerations), String(maxTiles), size(cards[4]!), size(cards[6]!), ...largest]
      }),
    )
  })
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('')
}
