// The experiment record of the point task: variants of its demo, three seeds each, one row of JSON per run, then a table.
// node --import tsx tools/points-experiments.ts [--out runs/points-experiments] [--only NAME,...] [--seeds 1,2,3] [--flags "..."]
// What has a row is not run again, so that the command resumes where it was stopped.
import { spawnSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { Command } from 'commander'
import { log, packageRoot } from '../src/core/index.ts'
import type { Interval } from '../src/tracking/index.ts'

interface Variant {
  name: string
  /** What differs from recipes/points-demo.yaml. */
  flags: string
  /** Flags of the supervised warm start it begins with, run once: the miniature has only read the question of `negatives`. */
  warm?: string
  /** Another start, a folder of --starts: what the policy was before it was spoiled, or before it was taught anything. */
  start?: 'see' | 'untrained'
}

const sft = '--lora.dropout 0 --maxSteps 240 --batchSize 8 --optim.learningRate 5e-3 --evalRecords 0'
const secondLook = '--points.mode second-look --rl.maxCompletionLength 48'
const joint = '--points.mode joint --rl.maxCompletionLength 80'
const slow = '--optim.learningRate 5e-4'

const variants: readonly Variant[] = [
  { name: 'negatives', flags: '' },
  { name: 'shuffled', flags: '--shuffleRewards true' },
  { name: 'second-look', flags: '--points.mode second-look' },
  { name: 'second-look-warm', flags: secondLook, warm: secondLook },
  { name: 'second-look-warm-slow', flags: `${secondLook} ${slow}`, warm: secondLook },
  { name: 'second-look-warm-turns', flags: `${secondLook} ${slow} --points.turns 2`, warm: secondLook },
  { name: 'joint-warm', flags: joint, warm: joint },
  { name: 'joint-warm-slow', flags: `${joint} ${slow}`, warm: joint },
  { name: 'logits', flags: '--points.previousMask logits' },
  { name: 'points-2', flags: '--points.maxPoints 2' },
  { name: 'points-3', flags: '--points.maxPoints 3' },
  { name: 'origin', flags: '--points.preset origin' },
  { name: 'relative', flags: '--points.reward.gainKind relative' },
  { name: 'no-placement', flags: '--points.reward.placement 0' },
  { name: 'unspoiled', flags: '', start: 'see' },
  { name: 'untaught', flags: '--maxSteps 10', start: 'untrained' },
]

type Metrics = Readonly<Record<string, Interval>>

/** One run. */
interface Row {
  name: string
  flags: string
  seed: number
  seconds: number
  before: Metrics
  after: Metrics
}

const { out, only, seeds, flags, starts } = new Command('points-experiments')
  .option('--out <folder>', 'where rows and run folders go', 'runs/points-experiments')
  .option('--only <names>', 'variants, with commas between them')
  .option('--seeds <list>', 'seeds, with commas between them', '1,2,3')
  .option('--starts <folder>', 'of `make-points-miniature.ts policy`: also runs the controls unspoiled and untaught')
  .option('--flags <text>', 'flags of every run, such as "--maxSteps 40"', '')
  .parse()
  .opts<{ out: string; only?: string; seeds: string; flags: string; starts?: string }>()

const file = join(out, 'rows.jsonl')
const wanted = only?.split(',') ?? variants.filter((v) => starts || !v.start).map((v) => v.name)
for (const name of wanted)
  if (!variants.some((v) => v.name === name)) throw new Error(`${name}: one of ${variants.map((v) => v.name)}, please`)
mkdirSync(out, { recursive: true })
for (const seed of seeds.split(',').map(Number))
  for (const variant of variants.filter((v) => wanted.includes(v.name))) {
    const all = `${flags} ${variant.flags}`.trim()
    if (rows().some((r) => r.name === variant.name && r.seed === seed && r.flags === all)) continue
    const model = modelOf(variant)
    const row = runOne(variant.name, all, seed, model)
    appendFileSync(file, `${JSON.stringify(row)}\n`)
    log.info(`${variant.name}, seed ${seed}: points/gain ${cell(row.after['points/gain'])}, ${row.seconds} s`)
  }
process.stdout.write(`${table(rows())}\n`)

function rows(): Row[] {
  if (!existsSync(file)) return []
  return readFileSync(file, 'utf8')
    .split('\n')
    .flatMap((line) => (line ? [JSON.parse(line) as Row] : []))
}

function runOne(name: string, all: string, seed: number, more: readonly string[]): Row {
  const output = join(out, `${name}-seed-${seed}-${rows().length}`)
  const text = roundtrip([...`demo --task points --json --seed ${seed} ${all}`.trim().split(/ +/), ...more], output)
  const { seconds, before, after } = JSON.parse(text.trimEnd().split('\n').at(-1)!) as Row
  return { name, flags: all, seed, seconds, before, after }
}

function modelOf({ name, warm, start }: Variant): string[] {
  if (warm !== undefined) return ['--model', warmStart(warm)]
  if (start === undefined) return []
  if (!starts) throw new Error(`${name}: needs --starts FOLDER`)
  return ['--model', join(starts, start)]
}

/** A model folder that has learned the answers of its mode from the records. */
function warmStart(mode: string): string {
  const name = `warm-${mode.split(' ')[1]}`
  const folder = resolve(out, `${name}-model`)
  const miniature = (part: string) => join(packageRoot(), 'assets', 'points-miniature', part)
  const words = `sft --recipe points-demo --seed 1 ${mode} ${sft}`.split(/ +/)
  const models = ['--model', miniature('policy'), '--points.sam', miniature('sam2')]
  if (!existsSync(folder)) roundtrip([...words, ...models, '--export', folder], join(out, `${name}-sft`))
  return folder
}

function roundtrip(words: readonly string[], output: string): string {
  const program = join(packageRoot(), 'bin', 'roundtrip.mjs')
  const done = spawnSync(process.execPath, [program, ...words, '--output', output], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (done.status !== 0) throw new Error(`${words.join(' ')}: exit ${done.status}`)
  return done.stdout
}

function cell(metric: Interval | undefined): string {
  if (!metric) return '-'
  return `${metric.mean.toFixed(3)} [${metric.low.toFixed(3)}, ${metric.high.toFixed(3)}]`
}

/** A line for every run: the gain before and after with its interval, then the comparison. */
function table(all: readonly Row[]): string {
  const beside = [
    'points/gain_random',
    'points/gain_heuristic',
    'points/gain_error_centre',
    'points/gain_best_click',
    'points/share_of_best_click',
  ]
  const mean = (metric: Interval | undefined) => metric?.mean.toFixed(3) ?? '-'
  const lines = all.map(({ name, seed, before, after, flags: given }) => {
    const metrics = [cell(before['points/gain']), cell(after['points/gain']), ...beside.map((m) => mean(after[m]))]
    const more = [mean(after['points/invalid']), mean(after['points/kept'])]
    return `| ${[name, seed, ...metrics, ...more, given ? `\`${given}\`` : 'the recipe'].join(' | ')} |`
  })
  const head = [
    'variant',
    'seed',
    'gain before',
    'gain after',
    'random',
    'heuristic',
    'error centre',
    'best click',
    'share',
    'invalid',
    'kept',
  ]
  return [`| ${[...head, 'flags'].join(' | ')} |`, `|${'---|'.repeat(head.length + 1)}`, ...lines].join('\n')
}
