import { rmSync } from 'node:fs'
import type { Command } from 'commander'
import type { CommandFlag } from '../config/index.ts'
import { humanBytes, log, temporaryFolder } from '../core/index.ts'
import { inWorld } from '../distributed/index.ts'
import type { EnginePort } from '../engine/index.ts'
import { failing, portHost, requirePaths, runHosted } from '../host/index.ts'
import type { DryRun, DryRunRow, RunConfig, RunResult } from '../run/index.ts'
import { openKind, type TaskKind } from '../tasks/index.ts'
import { launchFlags, placeOrLaunch, processCount } from './launch.ts'
import { ofResumed, readRunSettings, rewardFlag, runCommand } from './settings.ts'
import { aligned, clip, evaluations, figure } from './table.ts'

const flags: CommandFlag[] = [
  { name: 'dry-run', doc: 'open everything, sample and score the first record, print it, write nothing' },
  { name: 'json', doc: 'print the result as one JSON object' },
  rewardFlag,
  ...launchFlags,
]

const about =
  'Train with both loops: GRPO on mask -> caption -> mask and caption -> mask -> caption. A run folder that holds a run is resumed.'

export function command(): Command {
  return runCommand('train', about, flags, run)
}

async function run(argv: readonly string[]): Promise<void> {
  const { config, flags: given, fromFiles } = readRunSettings(argv, flags, {}, ofResumed('runs/train'))
  requirePaths(config)
  const json = given.has('json')
  if (given.has('dry-run')) return dryRunOf(config, fromFiles, json, processCount(given))
  const place = await placeOrLaunch('train', given, config.output)
  if (!place) return
  const scores = { config, fromFiles }
  const work = () => runHosted({ module: import.meta.url, work: 'trainWork', input: config, scores, label: 'train' })
  const result = (await failing(config.output, work)) as RunResult
  if (place.rank > 0) return
  process.stdout.write(json ? `${JSON.stringify(result)}\n` : await summary(config, result))
}

/** Runs in the engine thread. */
export async function trainWork(config: RunConfig, port: EnginePort): Promise<RunResult> {
  const { train } = await import('../run/index.ts')
  return inWorld({ collective: config.distTimeout }, (world) => train(config, portHost(port), undefined, world))
}

/** Runs in the engine thread. */
export async function dryRunWork(input: { config: RunConfig; processes: number }, port: EnginePort): Promise<DryRun> {
  const { dryRun } = await import('../run/index.ts')
  return dryRun(input.config, portHost(port), input.processes)
}

async function summary(config: RunConfig, result: RunResult): Promise<string> {
  const { step, stopped, checkpoint, judge } = result
  const lines = [`${stopped ? 'stopped' : 'done'} after step ${step}`]
  if (checkpoint) lines.push(`checkpoint ${checkpoint}`)
  if (judge) lines.push((await import('../run/index.ts')).judgeLine(judge))
  lines.push(...evaluations(result))
  if (stopped) lines.push(`the same command goes on from here; run folder ${config.output}`)
  return `${lines.join('\n')}\n`
}

/** A judge keeps its answers in a folder; a dry run keeps none. */
async function dryRunOf(
  config: RunConfig,
  fromFiles: ReadonlySet<string>,
  json: boolean,
  processes: number,
): Promise<void> {
  const scratch = temporaryFolder('dry')
  try {
    const rewards = { ...config.rewards, judge: { ...config.rewards.judge, cacheDir: scratch } }
    const input = { config: { ...config, featureCache: null }, processes }
    const found = (await runHosted({
      module: import.meta.url,
      work: 'dryRunWork',
      input,
      scores: { config: { ...config, rewards }, fromFiles },
      label: 'dry run',
    })) as DryRun
    process.stdout.write(json ? `${JSON.stringify(found)}\n` : await dryRunText(config, found))
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
  log.info('dry run: nothing was written')
}

const thousands = (n: number) => n.toLocaleString('en')

async function dryRunText(config: RunConfig, found: DryRun): Promise<string> {
  const { model, groups, records, steps, measured, memory: m } = found
  const { groupText, judgeLine, rewardLines, sharesText } = await import('../run/index.ts')
  const kind = (await openKind(config.task)) as TaskKind<RunConfig>
  const rewards = rewardLines(kind, config)
  const tasks = [...new Set(found.rows.map((r) => r.task))]
  return [
    `1 model    ${model.dir}: ${thousands(model.values)} values in ${model.tensors} tensors, ${model.dtype} on ${model.device}`,
    ...groups.map((g) => `           ${groupText(g)}`),
    `2 records  ${config.dataPath} (${records.format}): ${records.all} records: ${records.split}`,
    ...rewards.map((line, i) => `${i === 0 ? '3 rewards ' : '          '} ${line}`),
    ...measured.map((line) => `           ${line}`),
    `4 memory   frozen weights ${humanBytes(m.frozen)}, trained weights with gradient, moments, EMA and start ${humanBytes(m.trained)},`,
    `           image features of a batch ${humanBytes(m.features)}, key-value cache at most ${humanBytes(m.cache)}; peak with one record ${humanBytes(m.peak)},`,
    `           with a batch of ${Math.ceil(config.batchSize / steps.processes)} about ${humanBytes(m.batch)}`,
    `5 steps    ${steps.total} of ${steps.recordsPerStep} records and ${steps.completionsPerStep} completions, by ${sharesText(config.batchSize, steps.processes)}`,
    ...found.notices.map((text) => `           warning: ${text}`),
    `6 first record`,
    ...tasks.map((task) => groupTable(found.rows.filter((r) => r.task === task))),
    ...(found.judge ? [judgeLine(found.judge)] : []),
    `gradient norms  ${Object.entries(found.gradNorms)
      .map(([group, norm]) => `${group} ${norm.toExponential(2)}`)
      .join('  ')}`,
    '',
  ].join('\n')
}

function groupTable(rows: readonly DryRunRow[]): string {
  const parts = [...new Set(rows.flatMap((r) => Object.keys(r.parts)))]
  const head = ['k', 'text', 'answer', ...parts, 'reward', 'advantage', 'tokens']
  const body = rows.map((r) => [
    String(r.k),
    clip(r.text, 48),
    clip(r.answer ?? '-', 40),
    ...parts.map((part) => figure(r.parts[part])),
    figure(r.total),
    figure(r.advantage),
    `${r.tokens}${r.finished ? '' : ' cut'}`,
  ])
  return `\n${rows[0]!.task}  record ${rows[0]!.id}: ${clip(rows[0]!.reference, 80)}\n${aligned([head, ...body])}\n`
}
