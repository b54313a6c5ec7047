// The experiment record: variants of the demo, three seeds each, as ordinary runs; then one page with their figures and curves.
// node --import tsx scripts/experiments.ts [--out runs/experiments] [--jobs 2] [--only NAME,...] [--seeds 1,2,3]; what has finished is not run again.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { verdict } from '../src/cli/demo.ts'
import { atomicWrite, log } from '../src/core/index.ts'
import { packageRoot } from '../src/engine/index.ts'
import { type Interval, type Run, readRun } from '../src/tracking/index.ts'
import { type Line, lineChart } from './lib/line-chart.ts'

interface Variant {
  name: string
  part: string
  /** What differs from recipes/demo.yaml. */
  flags: string
}

const loop1 = '--loop2.weight 0 --train mlp1,lora'
const loop2 = '--loop1.weight 0 --loop2.maskLoss 0'
const decoder = '--train text_hidden_fcs,mask_decoder,prompt_encoder'
const actions = 'Loop 2 alone, by policy gradient'
const variants: readonly Variant[] = [
  { part: 'Loops', name: 'both', flags: '' },
  { part: 'Loops', name: 'loop-1', flags: loop1 },
  { part: 'Loops', name: 'shuffled', flags: '--loop2.maskLoss 0 --shuffleRewards true' },
  ...[0.15, 0.3, 0.6].map((std) => ({
    part: actions,
    name: `embedding-${std}`,
    flags: `${loop2} --train text_hidden_fcs --loop2.actionStd ${std}`,
  })),
  ...[0.25, 0.5, 1].map((std) => ({
    part: actions,
    name: `field-${std}`,
    flags: `${loop2} ${decoder} --loop2.action field --loop2.actionStd ${std} --optim.learningRate 1e-4`,
  })),
  {
    part: actions,
    name: 'text',
    flags: `${loop2} --loop2.action text --loop2.sampleText true --train mlp1,lora`,
  },
  {
    part: actions,
    name: 'mask-loss-alone',
    flags: '--loop1.weight 0 --train text_hidden_fcs --rewards.loop2.terms [{"type":"format","of":"text"}]',
  },
  { part: 'Samples per record', name: 'k-2', flags: '--rl.numGenerations 2' },
  { part: 'Samples per record', name: 'k-4', flags: '--rl.numGenerations 4' },
  { part: 'Samples per record', name: 'k-8', flags: '--rl.numGenerations 8' },
]
const metrics = ['caption/meteor', 'mask/giou', 'cycle/iou', 'cycle/meteor'] as const

type Figures = Readonly<Record<string, Interval>>
interface Finished {
  before: Figures
  after: Figures
  run: Run
}

const command = (variant: Variant, seed: number, output: string) =>
  `roundtrip train --recipe demo --model assets/miniature ${variant.flags} --seed ${seed} --output ${output}`.replace(
    / +/g,
    ' ',
  )

function finished(output: string): Finished | null {
  if (!existsSync(join(output, 'events.jsonl'))) return null
  const run = readRun(output)
  const evaluation = (name: string) => run.events.find((e) => e.t === 'eval' && e.name === name)
  const [before, after] = [evaluation('before'), evaluation('after')]
  if (before?.t !== 'eval' || after?.t !== 'eval') return null
  return { before: before.metrics, after: after.metrics, run }
}

function execute(line: string, output: string): Promise<void> {
  const argv = [join(packageRoot(), 'bin', 'roundtrip.mjs'), ...line.split(' ').slice(1), '--tensorboard', 'false']
  const out = openSync(`${output}.log`, 'w')
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, argv, { cwd: packageRoot(), stdio: ['ignore', out, out] })
    child.on('error', reject).on('exit', (code) => {
      if (code === 0) resolve()
      else reject(new Error(`${line}: exit ${code}, see ${output}.log`))
    })
  })
}

async function runAll(
  folder: string,
  jobs: number,
  wanted: readonly Variant[],
  seeds: readonly number[],
): Promise<void> {
  const open = seeds.flatMap((seed) => wanted.map((variant) => ({ variant, seed })))
  const worker = async () => {
    for (let next = open.shift(); next; next = open.shift()) {
      const output = join(folder, `${next.variant.name}-seed-${next.seed}`)
      if (finished(output)) continue
      const startedAt = performance.now()
      await execute(command(next.variant, next.seed, output), output)
      log.info(`${output}: ${((performance.now() - startedAt) / 1000).toFixed(0)} s, ${open.length} left`)
    }
  }
  await Promise.all(Array.from({ length: jobs }, worker))
}

const signs: Readonly<Record<string, string>> = { higher: '+', lower: '-', no: '·' }

/** `+` or `-` for each seed whose interval after training has nothing in common with the one before. */
function marks(runs: readonly Finished[], metric: string): string {
  return runs.map(({ before, after }) => signs[verdict(before[metric]!, after[metric]!)]).join('')
}

function row(variant: Variant, runs: readonly Finished[]): string {
  const cells = metrics.map((metric) => {
    const change = runs.map(({ before, after }) => after[metric]!.mean - before[metric]!.mean)
    const mean = change.reduce((a, b) => a + b, 0) / change.length
    const [low, high] = [Math.min(...change), Math.max(...change)].map((x) => x.toFixed(3))
    return `${mean < 0 ? '' : '+'}${mean.toFixed(3)} (${low} to ${high}) ${marks(runs, metric)}`
  })
  return `| ${variant.name} | ${cells.join(' | ')} | \`${variant.flags || '(the recipe)'}\` |`
}

function rewardLines(found: ReadonlyMap<string, readonly Finished[]>, key: string): Line[] {
  return [...found].flatMap(([name, runs]) => {
    const series = runs.map(({ run }) =>
      run.events.flatMap((e) =>
        e.t === 'step' && e.metrics[key] !== undefined ? [{ step: e.step, value: e.metrics[key] as number }] : [],
      ),
    )
    if (series.some((s) => s.length === 0)) return []
    const length = Math.min(...series.map((s) => s.length))
    const points = Array.from({ length }, (_, i) => ({
      step: series[0]![i]!.step,
      value: series.reduce((sum, s) => sum + s[i]!.value, 0) / series.length,
    }))
    return [{ name, points }]
  })
}

function page(folder: string, docs: string, seeds: readonly number[]): string {
  const parts = [...new Set(variants.map((v) => v.part))]
  const all = new Map(
    variants.flatMap((v) => {
      const runs = seeds.flatMap((seed) => finished(join(folder, `${v.name}-seed-${seed}`)) ?? [])
      return runs.length > 0 ? [[v.name, runs] as const] : []
    }),
  )
  const start = [...all.values()][0]?.[0]?.before
  const text = [
    '| start | ' + metrics.join(' | ') + ' |',
    '|---|---|---|---|---|',
    start
      ? `| [95 %] | ${metrics.map((m) => `${start[m]!.mean.toFixed(3)} [${start[m]!.low.toFixed(3)}, ${start[m]!.high.toFixed(3)}]`).join(' | ')} |`
      : '',
  ]
  for (const part of parts) {
    const own = variants.filter((v) => v.part === part && all.has(v.name))
    if (own.length === 0) continue
    const some = new Map(own.map((v) => [v.name, all.get(v.name)!]))
    text.push('', `### ${part}`, '', `| variant | ${metrics.join(' | ')} | flags |`, '|---|---|---|---|---|---|')
    text.push(...own.map((v) => row(v, all.get(v.name)!)))
    for (const [key, title] of [
      ['loop1/reward_mean', 'loop 1: IoU of the sampled captions'],
      ['loop2/reward_mean', 'loop 2: METEOR of the sampled masks'],
    ] as const) {
      const lines = rewardLines(some, key)
      if (lines.length === 0) continue
      const file = `${part} ${key.slice(0, 5)}`.toLowerCase().replace(/[^a-z0-9]+/g, '-')
      mkdirSync(join(docs, 'images'), { recursive: true })
      atomicWrite(join(docs, 'images', `experiments-${file}.svg`), lineChart(title, lines))
      text.push('', `![${title}](images/experiments-${file}.svg)`)
    }
  }
  return text.join('\n')
}

const program = new Command()
  .option('--out <dir>', 'run folders', 'runs/experiments')
  .option('--jobs <n>', 'runs at a time', '2')
  .option('--only <names>', 'variants, by comma')
  .option('--seeds <list>', 'seeds, by comma', '1,2,3')
const options = program.parse().opts<{ out: string; jobs: string; only?: string; seeds: string }>()
const names = options.only?.split(',')
const seeds = options.seeds.split(',').map(Number)
mkdirSync(options.out, { recursive: true })
await runAll(
  options.out,
  Number(options.jobs),
  variants.filter((v) => names?.includes(v.name) ?? true),
  seeds,
)
const docs = join(packageRoot(), 'docs')
atomicWrite(join(options.out, 'tables.md'), `${page(options.out, docs, seeds)}\n`)
log.info(`${join(options.out, 'tables.md')}: the tables of docs/experiments.md`)
