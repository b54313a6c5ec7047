// `roundtrip compare A B`: two runs or models on the same held-out records.
import { existsSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { flagsOf } from '../config/index.ts'
import { atomicWrite, counted, log, Mismatch, makeFolder } from '../core/index.ts'
import type { ComparedSentence, ComparisonPage } from '../dashboard/index.ts'
import { requirePaths, runWork } from '../host/index.ts'
import {
  type ComparedModels,
  type ModelSide,
  type RecordChange,
  type RunConfig,
  settingsToEvaluate,
  storedSettings,
} from '../run/index.ts'
import { type ReadSample, shownOf, smallSampleNote } from '../tracking/index.ts'
import { requireRead } from './command-settings.ts'
import { recordsOf } from './eval.ts'
import { runOfCheckpoint } from './exported-card.ts'
import { requireWritable } from './output-file.ts'
import { type RunCommand, readRunSettings, runCommand } from './settings.ts'
import { aligned, interval, rounded, verdict } from './table.ts'

const flags = flagsOf({
  'records N': 'at most this many records, as --evalRecords N (default: all)',
  'out DIR': 'folder of the page compare.html (default: here)',
  json: 'print one JSON object',
})

export const help: RunCommand = {
  name: 'compare',
  about:
    'compare A B: two runs, checkpoints or model folders on the same held-out records, with a paired bootstrap 95 % interval of the change from A to B. Data and held-out part are those of the first run of the two; --data PATH takes others.',
  flags,
  example: 'runs/first runs/second --evalRecords 8',
}

export const command = () => runCommand(help, run)

interface Side {
  place: string
  /** The run that trained it; null: a model folder, or an adapter of no run. */
  run: string | null
  adapter: string | null
}

function sideOf(place: string): Side {
  if (!existsSync(place)) throw new Mismatch({ where: 'compare', expected: 'a run or a model folder', got: place })
  const run = runOfCheckpoint(place)?.run ?? null
  const isAdapter =
    run !== null || ['adapter_config.json', 'trainables.safetensors'].some((f) => existsSync(join(place, f)))
  return { place, run, adapter: isAdapter ? place : null }
}

/** The model folder, its run's own one, or --model. */
function modelOf({ place, run, adapter }: Side, config: RunConfig, isTyped: boolean): string {
  if (adapter === null) return place
  const stored = run === null || isTyped ? undefined : storedSettings(run)['model']
  return typeof stored === 'string' ? stored : config.model
}

function requireSameTask(sides: readonly Side[]): void {
  const tasks = sides.flatMap(({ run }) => (run === null ? [] : [String(storedSettings(run)['task'] ?? 'cycle')]))
  if (tasks.length < 2 || tasks[0] === tasks[1]) return
  throw new Mismatch({ where: 'compare', field: 'task', expected: `${tasks[0]}, as the first run`, got: tasks[1] })
}

async function run(argv: readonly string[]): Promise<void> {
  const places = argv.slice(0, 2)
  const [expected, got] = ['two runs or model folders, A B', places.join(' ') || 'nothing']
  if (places.length < 2 || places.some((word) => word.startsWith('--')))
    throw new Mismatch({ where: 'compare', expected, got })
  const sides = places.map(sideOf) as [Side, Side]
  requireSameTask(sides)
  const source = sides.find((side) => side.run !== null)?.run ?? null
  const model = sides.find(({ adapter }) => adapter === null)?.place ?? ''
  const settings = readRunSettings(argv.slice(2), flags, { model }, (given) =>
    source === null ? {} : settingsToEvaluate(source, given.paths.has('dataPath')),
  )
  const { config, flags: given, typed } = settings
  requireRead('compare', settings, config)
  requirePaths(config)
  const records = recordsOf(settings)
  const out = given.get('out')?.[0] ?? '.'
  requireWritable(out)
  const input = sides.map((side): ModelSide => {
    const model = modelOf(side, config, typed.has('model'))
    return { config: { ...config, model }, options: { adapter: side.adapter, ema: false, records, run: side.run } }
  })
  const found = await runWork('compare', input as [ModelSide, ModelSide], { label: 'comparison' })
  if (!found) return log.warn('stopped before the last record: nothing is compared, no page is written')
  const page = await writePage(found, places as [string, string], out)
  const { changes, sides: evaluated, ...rest } = found
  const briefs = changes.map(({ id, before, after, change }) => ({ id, before, after, change }))
  const of = evaluated.map(({ model, adapter, trainedOn }) => ({ model, adapter, trainedOn }))
  if (given.has('json')) process.stdout.write(`${JSON.stringify({ sides: of, ...rest, changes: briefs, page })}\n`)
  else process.stdout.write(textOf(found))
  log.info(`page: ${page}`)
}

const shown = 5

function textOf({ records, main, metrics, wins, losses, ties, changes }: ComparedModels): string {
  const rows = Object.entries(metrics).map(([name, { before, after, change }]) => {
    return [name, rounded(before), rounded(after), interval(change), verdict(change)]
  })
  const moved = changes.filter(({ change }, i) => change !== 0 && (i < shown || i >= changes.length - shown))
  const listed = moved.map(({ id, before, after, change }) => [id, rounded(before), rounded(after), rounded(change)])
  const notes = [
    `${counted(records, 'held-out record')}; ${main}: B is better on ${wins}, worse on ${losses}, equal on ${ties}`,
    smallSampleNote(records),
  ]
  return [
    aligned([['metric', 'A', 'B', 'change [95 %]', ''], ...rows]),
    ...['', ...notes.filter((note) => note !== null), ''],
    aligned([['record', 'A', 'B', 'change'], ...listed]),
    '',
  ].join('\n')
}

function sentenceOf({ id, before, after, shown: both, image }: RecordChange): ComparedSentence {
  const lists = both.map((list) => shownOf({ shown: list } as unknown as ReadSample))
  const caption = lists[0]!.find((item) => item.kind === 'text' && item.by === 'record')
  return {
    id,
    text: caption?.kind === 'text' ? caption.text : id,
    image: image === undefined ? null : `data:image/png;base64,${image}`,
    sides: [before, after].map((iou, i) => ({ iou, shown: lists[i]! })),
  }
}

async function writePage(found: ComparedModels, places: readonly [string, string], out: string): Promise<string> {
  const { renderComparison } = await import('../dashboard/index.ts')
  makeFolder(out)
  const withImage = found.changes.filter(({ image }) => image !== undefined)
  const names = places.map((place) => basename(resolve(place)))
  const data: ComparisonPage = {
    title: `${names[0]} and ${names[1]}`,
    names: ['A', 'B'],
    facts: places.map((place, i) => `${'AB'[i]}: ${place}`).concat(`${counted(found.records, 'held-out record')}.`),
    metrics: Object.entries(found.metrics).map(([name, change]) => ({ name, ...change })),
    ...{ wins: found.wins, losses: found.losses, ties: found.ties },
    about: { each: 'records', metric: found.main, unit: 'records' },
    gained: withImage.filter(({ change }) => change > 0).map(sentenceOf),
    lost: withImage
      .filter(({ change }) => change < 0)
      .reverse()
      .map(sentenceOf),
  }
  const page = join(out, 'compare.html')
  atomicWrite(page, await renderComparison(data))
  return page
}
