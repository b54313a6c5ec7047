// The experiment record: variants of the demo, three seeds each, as ordinary runs; then one page with their metrics and curves.
// node --import tsx tools/experiments.ts [--out runs/experiments] [--jobs 2] [--only NAME,...] [--seeds 1,2,3]; what has finished is not run again.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { Command } from 'commander'
import { atomicWrite, log, packageRoot } from '../src/core/index.ts'
import { apartFrom, type Interval, type Run, readRun, runFiles } from '../src/tracking/index.ts'
import { type Line, lineChart } from './lib/line-chart.ts'

interface Part {
  title: string
  /** Folder under assets. */
  model: string
  /** What all variants have besides recipes/demo.yaml. */
  common: string
  variants: readonly { name: string; flags: string }[]
}
interface Variant {
  name: string
  /** What differs from recipes/demo.yaml. */
  flags: string
  model: string
}

const parts: readonly Part[] = [
  {
    title: 'Loops',
    model: 'miniature',
    common: '',
    variants: [
      { name: 'both', flags: '' },
      { name: 'loop-1', flags: '--loop2.weight 0 --train mlp1,lora' },
      { name: 'loop-2', flags: '--loop1.weight 0 --loop2.action field --train mask_decoder' },
      { name: 'shuffled', flags: '--shuffleRewards true' },
    ],
  },
  {
    title: 'Loop 2 alone, by policy gradient',
    model: 'miniature-full', // its captions say all they see: a judge that sees which mask it gets
    common:
      '--loop1.weight 0 --loop2.beta 0 --rl.scaleRewards none --batchSize 16 --rl.numGenerations 8 --maxSteps 80 --evalPath scenes:1024:9001 --evalRecords 1024',
    variants: [
      ...[0.5, 1, 2].map((std) => ({
        name: `field-${std}`,
        flags: `--train mask_decoder --loop2.action field --loop2.actionStd ${std}`,
      })),
      ...[0.3, 0.6, 1.2].map((std) => ({
        name: `embedding-${std}`,
        flags: `--train text_hidden_fcs --loop2.action embedding --loop2.actionStd ${std}`,
      })),
      { name: 'prompt-and-field', flags: '--loop2.action both' },
      { name: 'text', flags: '--train mlp1,lora --loop2.action text --loop2.sampleText true' },
      {
        name: 'mask-loss-alone',
        flags:
          '--train mask_decoder --loop2.action field --loop2.maskLoss 1 --rewards.loop2.terms [{"type":"format","of":"text"}]',
      },
    ],
  },
  {
    title: 'Samples per record',
    model: 'miniature',
    common: '',
    variants: [2, 4, 8].map((k) => ({ name: `k-${k}`, flags: `--rl.numGenerations ${k}` })),
  },
]
const variants: readonly Variant[] = parts.flatMap(({ model, common, variants: some }) =>
  some.map(({ name, flags }) => ({ name, model, flags: `${common} ${flags}`.trim() })),
)
const metrics = ['caption/meteor', 'mask/giou', 'cycle/iou', 'cycle/meteor'] as const

type Figures = Readonly<Record<string, Interval>>
interface Finished {
  before: Figures
  after: Figures
  run: Run
}

const command = (variant: Variant, seed: number, output: string) =>
  `roundtrip train --recipe demo --model assets/${variant.model} ${variant.flags} --seed ${seed} --output ${output}`.replace(
    / +/g,
    ' ',
  )

const folderOf = (folder: string, name: string, seed: number) => join(folder, `${name}-seed-${seed}`)

function finished(output: string): Finished | null {
  if (!existsSync(join(output, runFiles.events))) return null
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
      const output = folderOf(folder, next.variant.name, next.seed)
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
  return runs.map(({ before, after }) => signs[apartFrom(before[metric]!, after[metric]!) ?? 'no']).join('')
}

function row({ name, flags }: { name: string; flags: string }, runs: readonly Finished[]): string {
  const cells = metrics.map((metric) => {
    const change = runs.map(({ before, after }) => after[metric]!.mean - before[metric]!.mean)
    const mean = change.reduce((a, b) => a + b, 0) / change.length
    const [low, high] = [Math.min(...change), Math.max(...change)].map((x) => x.toFixed(3))
    return `${mean < 0 ? '' : '+'}${mean.toFixed(3)} (${low} to ${high}) ${marks(runs, metric)}`
  })
  return `| ${name} | ${cells.join(' | ')} | ${flags ? `\`${flags}\`` : 'the recipe'} |`
}

function rewardLines(found: ReadonlyMap<string, readonly Finished[]>, key: string): Line[] {
  return [...found].flatMap(([name, runs]) => {
    const series = runs.map(({ run }) =>
      run.events.flatMap((e) =>
        e.t === 'step' && e.metrics[key] !== undefined ? [{ step: e.step, value: e.metrics[key] as number }] : [],
      ),
    )
    // a reward that never changes is not a signal: supervision alone has one
    if (series.some((s) => new Set(s.map((p) => p.value)).size < 2)) return []
    const length = Math.min(...series.map((s) => s.length))
    const points = Array.from({ length }, (_, i) => ({
      step: series[0]![i]!.step,
      value: series.reduce((sum, s) => sum + s[i]!.value, 0) / series.length,
    }))
    return [{ name, points }]
  })
}

const startRow = ({ before }: Finished) =>
  `| the start | ${metrics.map((m) => `${before[m]!.mean.toFixed(3)} [${before[m]!.low.toFixed(3)}, ${before[m]!.high.toFixed(3)}]`).join(' | ')} | |`

function charts(title: string, found: ReadonlyMap<string, readonly Finished[]>, docs: string): string[] {
  const titles = [
    ['loop1/reward_mean', 'loop 1: IoU of the sampled captions'],
    ['loop2/reward_mean', 'loop 2: METEOR of the sampled masks'],
  ] as const
  return titles.flatMap(([key, caption]) => {
    const lines = rewardLines(found, key)
    if (lines.length === 0) return []
    const file = `${title} ${key.slice(0, 5)}`.toLowerCase().replace(/[^a-z0-9]+/g, '-')
    mkdirSync(join(docs, 'images'), { recursive: true })
    atomicWrite(join(docs, 'images', `experiments-${file}.svg`), lineChart(caption, lines))
    return ['', `![${caption}](images/experiments-${file}.svg)`]
  })
}

function page(folder: string, docs: string, seeds: readonly number[]): string {
  return parts
    .flatMap(({ title, model, common, variants: some }) => {
      const found = some
        .map((v) => ({ ...v, runs: seeds.flatMap((seed) => finished(folderOf(folder, v.name, seed)) ?? []) }))
        .filter((v) => v.runs.length > 0)
      const first = found[0]?.runs[0]
      if (!first) return []
      return [
        `### ${title}`,
        '',
        `From \`assets/${model}\`${common ? `, all with \`${common}\`` : ''}:`,
        '',
        `| variant | ${metrics.map((m) => `\`${m}\``).join(' | ')} | flags |`,
        '|---|---|---|---|---|---|',
        startRow(first),
        ...found.map((v) => row(v, v.runs)),
        ...charts(title, new Map(found.map((v) => [v.name, v.runs])), docs),
        '',
      ]
    })
    .join('\n')
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
log.info(`${join(options.out, 'tables.md')}: the tables of dev/results/experiments.md`)
