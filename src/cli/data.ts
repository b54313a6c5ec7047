import { Command } from 'commander'
import { atomicWrite, Mismatch } from '../core/index.ts'
import type { MakeScenesOptions, Source } from '../data/index.ts'
import { choice, count, whole } from './model.ts'
import { requireOutput } from './output-file.ts'

/** Progress on standard error: a line that renews itself on a terminal, otherwise one line every few seconds. */
function progress(label: string): (done: number, total: number) => void {
  let shownAt = performance.now()
  return (done, total) => {
    const terminal = process.stderr.isTTY
    if (performance.now() - shownAt < (terminal ? 100 : 5000) && !(terminal && done === total)) return
    shownAt = performance.now()
    process.stderr.write(`${terminal ? '\r' : ''}${label} ${done} of ${total}${terminal && done < total ? '' : '\n'}`)
  }
}

interface SourceFlags {
  relation: 'skip' | 'first'
  split: string
  cocoText: 'category' | 'captions'
  imageRoot?: string
  skipBrokenShards?: boolean
  'data.split': 'all' | 'train' | 'eval'
  'data.evalFraction'?: number
}

function withSourceFlags(command: Command): Command {
  return command
    .addOption(choice('--relation <mode>', 'records that name several regions', ['skip', 'first'], 'skip'))
    .option('--split <name>', 'split of RefCOCO, COCO, Parquet, DatasetDict or a datasets cache', 'train')
    .addOption(choice('--coco-text <which>', 'text of COCO regions', ['category', 'captions'], 'category'))
    .option('--image-root <folder>', 'where the images are, if not where the format puts them')
    .addOption(
      choice(
        '--data.split <part>',
        'the part that a run with these settings would read',
        ['all', 'train', 'eval'],
        'all',
      ),
    )
    .option('--data.evalFraction <x>', 'share of the records in the eval part', Number)
    .option('--skip-broken-shards', 'continue without shards that are truncated or missing')
}

async function open(path: string, flags: SourceFlags) {
  const { openSource } = await import('../data/index.ts')
  const { relation, split, cocoText, imageRoot, skipBrokenShards } = flags
  try {
    const source = await openSource(path, { relation, refSplit: split, cocoText, imageRoot, skipBrokenShards })
    return await partOf(source, flags)
  } catch (error) {
    throw withFlagName(error)
  }
}

/** The source with the records of one part only. */
async function partOf(source: Source, flags: SourceFlags): Promise<Source> {
  const { DataConfig, splitIndices } = await import('../data/index.ts')
  const { 'data.split': split, 'data.evalFraction': evalFraction } = flags
  if (split === 'all') return source
  const part = splitIndices(source, DataConfig.parse({ split, evalFraction }))
  const name = `${source.name} (${split} part)`
  const get = (i: number) => source.get(part[i]!)
  return { ...source, name, length: part.length, get, id: (i) => source.id(part[i]!) }
}

/** The setting of a hint as these commands spell it. */
function withFlagName(error: unknown): unknown {
  if (!(error instanceof Mismatch) || !error.info.hint?.includes('data.imageRoot')) return error
  const hint = error.info.hint.replace('data.imageRoot', '--image-root')
  return new Mismatch({ ...error.info, hint }, { cause: error })
}

async function inspect(path: string, flags: SourceFlags & { sample: number; json?: boolean }): Promise<void> {
  const { inspectSource, renderInspection } = await import('../data/index.ts')
  const source = await open(path, flags)
  try {
    const found = await inspectSource(source, { sample: flags.sample, onProgress: progress('checked') })
    process.stdout.write(flags.json ? `${JSON.stringify(found, null, 2)}\n` : renderInspection(found))
  } finally {
    await source.close()
  }
}

async function preview(path: string, flags: SourceFlags & { out: string; n: number; start: number }): Promise<void> {
  requireOutput(flags.out, '.html', path)
  const { previewPage } = await import('../dashboard/index.ts')
  const source = await open(path, flags)
  try {
    const length = Math.max(0, Math.min(flags.n, source.length - flags.start))
    const indices = Array.from({ length }, (_, i) => flags.start + i)
    atomicWrite(flags.out, await previewPage(source, indices))
    process.stdout.write(`${flags.out}\n`)
  } finally {
    await source.close()
  }
}

async function scenes(flags: MakeScenesOptions): Promise<void> {
  const { makeScenes } = await import('../data/index.ts')
  const tell = progress('scenes')
  const written = await makeScenes({ ...flags, onProgress: (done) => tell(done, flags.n) })
  process.stdout.write(`${flags.out}: ${written} scenes\n`)
}

export function command(): Command {
  const data = new Command('data').description('look at datasets, and make one')
  withSourceFlags(
    data
      .command('inspect')
      .description('format, schema, counts, first records, unusable records by reason, sizes')
      .argument('<path>', 'file, folder, scenes:COUNT, or the id of a downloaded dataset'),
  )
    .option('--sample <n>', 'records to decode', count, 500)
    .option('--json', 'the same as JSON')
    .action(inspect)
  withSourceFlags(
    data
      .command('preview')
      .description('a page of images with their masks and captions')
      .argument('<path>', 'as for inspect'),
  )
    .requiredOption('--out <file>', 'HTML file to write')
    .option('--n <n>', 'records on the page', count, 48)
    .option('--start <i>', 'first record', whole, 0)
    .action(preview)
  data
    .command('make-scenes')
    .description('write generated scenes with exact masks and captions')
    .requiredOption('--n <n>', 'how many', count)
    .requiredOption('--out <folder>', 'folder to write')
    .addOption(choice('--format <format>', 'storage', ['gar-arrow', 'jsonl'], 'gar-arrow'))
    .option('--seed <n>', 'which endless set of scenes', whole, 0)
    .option('--size <px>', 'side of the square images', count, 112)
    .action(scenes)
  return data
}
