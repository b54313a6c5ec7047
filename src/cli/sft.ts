import { flagsOf } from '../config/index.ts'
import { Mismatch } from '../core/index.ts'
import { failing, requirePaths, runWork } from '../host/index.ts'
import { type SftSettings, sftDefaults } from '../run/index.ts'
import { requireRead } from './command-settings.ts'
import { writeExportedCard } from './exported-card.ts'
import { launchFlags, placeOrLaunch } from './launch.ts'
import { ofResumed, type RunCommand, readRunSettings, runCommand } from './settings.ts'
import { runSummary } from './table.ts'

const flags = flagsOf({
  'train all | GROUPS': 'all: every weight, encoders included; else groups, as the setting train',
  'export DIR': 'write the finished model as a full folder, adapters merged',
  'maskWeight X': 'weight of the mask loss beside the cross-entropy (default 1)',
  json: 'print the result as one JSON object',
}).concat(launchFlags)

export const help: RunCommand = {
  name: 'sft',
  about:
    'Supervised fine-tuning: cross-entropy on both answers of a record, BCE and Dice on its mask; for --task points, answers built from its mask. A run folder that holds a run is resumed.',
  flags,
  example: '--recipe demo --model assets/miniature --data scenes:200 --output runs/first',
}

export const command = () => runCommand(help, run)

/** `--train all` is not a list of groups: it is taken off the line, and any other value is left to the setting. */
export function takeTrainAll(argv: readonly string[]): { argv: string[]; everything: boolean } {
  const out: string[] = []
  let everything = false
  for (let i = 0; i < argv.length; i++) {
    if (argv[i] === '--train=all') everything = true
    else if (argv[i] === '--train' && argv[i + 1] === 'all') {
      everything = true
      i++
    } else out.push(argv[i]!)
  }
  return { argv: out, everything }
}

function weightOf(text: string | undefined): number {
  const weight = Number(text ?? 1)
  if (Number.isFinite(weight) && weight >= 0) return weight
  throw new Mismatch({ where: 'flags', field: '--maskWeight', expected: 'a number from 0', got: text })
}

async function run(words: readonly string[]): Promise<void> {
  const { argv, everything } = takeTrainAll(words)
  const own = flags.filter((flag) => flag.name !== 'train')
  const read = readRunSettings(argv, own, { output: 'runs/sft', ...sftDefaults }, ofResumed('runs/sft'))
  const { config, flags: given } = read
  requireRead(everything ? 'sft --train all' : 'sft', read, config)
  requirePaths(config)
  const maskWeight = weightOf(given.get('maskWeight')?.[0])
  const settings: SftSettings = {
    everything,
    maskWeight,
    exportTo: given.get('export')?.[0] ?? null,
  }
  const place = await placeOrLaunch('sft', given, config.output)
  if (!place) return
  const result = await failing(config.output, () => runWork('sft', { config, settings }, { label: 'sft' }))
  if (place.rank > 0) return
  const { exported, step } = result
  if (exported) await writeExportedCard({ out: exported, source: config.model, run: config.output, step })
  const lines = exported ? [`model ${exported}`] : []
  process.stdout.write(given.has('json') ? `${JSON.stringify(result)}\n` : runSummary(config.output, result, lines))
}
