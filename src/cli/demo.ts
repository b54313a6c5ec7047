import { existsSync, rmSync } from 'node:fs'
import { join, relative } from 'node:path'
import { flagsOf } from '../config/index.ts'
import { atomicWrite, cacheFolder, log, Mismatch, packageRoot, refuseAt } from '../core/index.ts'
import { runWork } from '../host/index.ts'
import type { RunConfig } from '../run/index.ts'
import { readRun, runFiles } from '../tracking/index.ts'
import { type RunCommand, type RunSettings, readRunSettings, rewardFlag, runCommand } from './settings.ts'
import { comparisonTable } from './table.ts'

const flags = flagsOf({
  json: 'print {seed, seconds, before, after} as the last line',
  photos: "MobileSAM's mask decoder on photographs instead of the miniature on scenes",
  watch: 'open a live page about the run while it trains',
}).concat(rewardFlag)

export const help: RunCommand = {
  name: 'demo',
  about:
    'Train the miniature model with both loops on generated scenes and compare it before and after. Settings: recipes/demo.yaml, then flags. --task points trains a miniature Qwen2.5-VL to place points for a miniature SAM2: recipes/points-demo.yaml. --photos trains the mask decoder of a real MobileSAM on photographs: recipes/photos-demo.yaml.',
  flags,
  example: '--seed 7 --maxSteps 20',
}

export const command = () => runCommand(help, run)

const shipped = (...path: string[]) => join(packageRoot(), ...path)

/** Recipe of each demo, and the settings that depend on where things are. */
const demos = {
  demo: () => ({ model: shipped('assets', 'miniature') }),
  'points-demo': () => ({
    model: shipped('assets', 'points-miniature', 'policy'),
    'points.sam': shipped('assets', 'points-miniature', 'sam2'),
  }),
  'photos-demo': () => ({ featureCache: join(cacheFolder(), 'features') }),
}

function demoOf(argv: readonly string[]): keyof typeof demos {
  const task = argv.flatMap((word, i) => (word === '--task' ? (argv[i + 1] ?? []) : (/^--task=(.*)/.exec(word)?.[1] ?? []))).at(-1) // biome-ignore format: one line
  const photos = argv.includes('--photos')
  if (photos && task !== undefined && task !== 'segment')
    throw new Mismatch({ where: 'demo', field: '--task', expected: 'segment with --photos', got: task })
  if (photos) return 'photos-demo'
  return task === 'points' ? 'points-demo' : 'demo'
}

/** The shipped recipe under whatever the line says; the run folder follows the seed unless one is named. */
export function readDemo(argv: readonly string[]): RunSettings & { freshName: boolean } {
  const demo = demoOf(argv)
  const first = readRunSettings(['--recipe', shipped('recipes', `${demo}.yaml`), ...argv], flags, demos[demo]())
  const freshName = !first.paths.has('output')
  const name = demo.split('-').reverse().join('-') // demo-points
  const output = freshName ? join('runs', `${name}-seed-${first.config.seed}`) : first.config.output
  const config = { ...first.config, output }
  if (config.evalRecords < 2) refuseAt('demo')('evalRecords', 'at least 2, for an interval', config.evalRecords)
  return { ...first, config, freshName }
}

/** Only a folder that this command named itself is replaced. */
function clearFolder({ output }: RunConfig, freshName: boolean): void {
  if (!existsSync(join(output, runFiles.events))) return
  if (freshName) {
    rmSync(output, { recursive: true })
    return
  }
  const hint = 'remove it or choose another; without --output the demo replaces its own last run'
  const got = `one that holds ${runFiles.events}`
  throw new Mismatch({ where: output, field: 'output', expected: 'a folder without a run', got, hint })
}

async function run(argv: readonly string[]): Promise<void> {
  const { config, flags: given, freshName, fromFiles } = readDemo(argv)
  clearFolder(config, freshName)
  log.info(
    `demo, seed ${config.seed}: ${config.maxSteps} steps of ${config.batchSize} records, run folder ${config.output}`,
  )
  const live = given.has('watch') ? await openLive(config.output) : undefined
  if (!live) log.info(`to see it learn: npx roundtrip-rl watch ${config.output}`)
  const work = runWork('train', config, { label: 'train', scores: { config, fromFiles } })
  const result = await work.finally(() => live?.close())
  const { step, stopped, before, after, evaluated } = result
  const page = await writeReport(config.output)
  const seconds = Math.round(performance.now()) / 1000
  if (stopped || !before || !after) {
    log.info(`stopped after step ${step}: no metrics after training; report ${page}`)
    process.exitCode = 130
    return
  }
  process.stdout.write(`\n${comparisonTable(before, after, evaluated)}\n${seconds.toFixed(0)} s\nreport ${page}\n`)
  if (given.has('json')) process.stdout.write(`${JSON.stringify({ seed: config.seed, seconds, before, after })}\n`)
}

async function openLive(output: string) {
  const { openBrowser, watchBeside } = await import('./watch.ts')
  const live = await watchBeside(output)
  log.info(`live page ${live.url}`)
  openBrowser(live.url)
  return live
}

export async function writeReport(output: string): Promise<string> {
  const { renderReport } = await import('../dashboard/index.ts')
  const path = join(output, 'report.html')
  atomicWrite(path, await renderReport(readRun(output)))
  const below = relative(process.cwd(), path)
  return below.startsWith('..') ? path : below
}
