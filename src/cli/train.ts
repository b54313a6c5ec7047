import { rmSync } from 'node:fs'
import { flagsOf } from '../config/index.ts'
import { humanBytes, log, Mismatch, spellControls, temporaryFolder } from '../core/index.ts'
import { failing, requirePaths, runWork, type ScoredSettings } from '../host/index.ts'
import type { DryRun, DryRunRow, RunConfig, RunResult } from '../run/index.ts'
import { openKind, type TaskKind } from '../tasks/index.ts'
import { launchFlags, placeOrLaunch, processCount } from './launch.ts'
import { ofResumed, type RunCommand, type RunSettings, readRunSettings, rewardFlag, runCommand } from './settings.ts'
import { aligned, clip, formatMetric, runSummary, thousands } from './table.ts'

/** For `--dry-run` and `doctor`. */
export const strictFlag = { name: 'strict', doc: 'exit with 1 if the verdict is that the model cannot learn' }

const flags = [
  ...flagsOf({ 'dry-run': 'open everything, sample and score the first record, print it, write nothing' }),
  strictFlag,
  ...flagsOf({ json: 'print the result as one JSON object' }),
  rewardFlag,
  ...launchFlags,
]

export const help: RunCommand = {
  name: 'train',
  about:
    'Train with both loops: GRPO on mask -> caption -> mask and caption -> mask -> caption. A run folder that holds a run is resumed.',
  flags,
  example: '--recipe demo --model assets/miniature --data scenes:200 --output runs/first',
}

export const command = () => runCommand(help, run)

async function run(argv: readonly string[]): Promise<void> {
  const settings = readRunSettings(argv, flags, {}, ofResumed('runs/train'))
  const { config, flags: given, fromFiles } = settings
  requirePaths(config)
  const json = given.has('json')
  if (given.has('dry-run')) return dryRunOf(settings)
  if (given.has('strict'))
    throw new Mismatch({ where: 'train', field: '--strict', expected: '--dry-run beside it', got: 'none' })
  const place = await placeOrLaunch('train', given, config.output)
  if (!place) return
  const options = { label: 'train', scores: { config, fromFiles } }
  const result = await failing(config.output, () => runWork('train', config, options))
  if (place.rank > 0) return
  process.stdout.write(json ? `${JSON.stringify(result)}\n` : await summary(config, result))
}

async function summary({ output }: RunConfig, result: RunResult): Promise<string> {
  const { judgeLine } = await import('../run/index.ts')
  return runSummary(output, result, result.judge ? [judgeLine(result.judge)] : [])
}

/** For a trial that writes nothing: settings without a feature cache, and a judge's answers in a folder that is removed. */
export async function inScratch<T>(
  { config, fromFiles }: ScoredSettings,
  work: (config: RunConfig, scores: ScoredSettings) => Promise<T>,
): Promise<T> {
  const scratch = temporaryFolder('dry')
  try {
    const rewards = { ...config.rewards, judge: { ...config.rewards.judge, cacheDir: scratch } }
    return await work({ ...config, featureCache: null }, { config: { ...config, rewards }, fromFiles })
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

async function dryRunOf(settings: RunSettings): Promise<void> {
  const { flags: given } = settings
  const found = await inScratch(settings, (config, scores) =>
    runWork('dryRun', { config, processes: processCount(given) }, { label: 'dry run', scores }),
  )
  log.info('dry run: nothing was written')
  process.stdout.write(given.has('json') ? `${JSON.stringify(found)}\n` : await dryRunText(settings.config, found))
  if (given.has('strict') && !found.verdict.canLearn) process.exitCode = 1
}

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
    found.verdict.text,
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
    ...parts.map((part) => formatMetric(r.parts[part])),
    formatMetric(r.total),
    formatMetric(r.advantage),
    `${r.tokens}${r.finished ? '' : ' cut'}`,
  ])
  const title = spellControls(`${rows[0]!.task}  record ${rows[0]!.id}: ${clip(rows[0]!.reference, 80)}`)
  return `\n${title}\n${aligned([head, ...body])}\n`
}
