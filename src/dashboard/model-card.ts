// README.md of an exported model in the hub's form: a head of YAML, then what one wants to know before loading it.
import { stringify } from 'yaml'
import { counted, shellWord } from '../core/index.ts'
import { apartFrom, type Interval, smallSampleNote } from '../tracking/index.ts'
import { digits } from './markup/evaluations.ts'

type IntervalsByName = Readonly<Record<string, Interval>>

export interface ModelCard {
  /** What the model is called. */
  name: string
  /** The model that was trained: an id of the hub, or the name of a folder. */
  baseModel: string
  /** SPDX name or one of the hub's; absent: the reader is sent to the base model's. */
  license?: string
  /** Reinforcement learning, or supervised fine-tuning. */
  method: 'grpo' | 'sft'
  /** How it was trained, by setting: those that a reader needs to judge or to repeat it. */
  recipe: readonly (readonly [string, string])[]
  data: { name: string; records?: number; trained?: number; heldOut?: number; evaluated?: number }
  steps?: number
  before?: IntervalsByName
  after?: IntervalsByName
  /** Number of held-out records in the metrics. */
  evalRecords?: number
  /** A file next to this model card. */
  picture?: { file: string; text: string }
  /** Product, torch, Node, device, commit. */
  versions: readonly (readonly [string, string])[]
  /** Command that trained it. */
  command?: readonly string[]
  /** What loads it, by title: code in the language of the fence. */
  loading: readonly { title: string; language: string; code: string }[]
}

/** Markdown reads marks and tags in any text; a backslash in front of them makes them plain. */
export function plain(text: string): string {
  return text
    .replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g, ' ')
    .replace(/[\\`*_{}[\]()#+!|<>~&$^=:@-]/g, (mark) => `\\${mark}`)
    .replaceAll('\\-', '-')
    .replaceAll('\\:', ':')
    .replaceAll('\\=', '=')
}

/** A fence longer than any in the code. */
function fenced(code: string, language: string): string {
  const longest = Math.max(2, ...(code.match(/`+/g) ?? []).map((run) => run.length))
  const fence = '`'.repeat(longest + 1)
  return `${fence}${language}\n${code.trimEnd()}\n${fence}`
}

/** What the hub reads, as YAML. */
function head(card: ModelCard): string {
  const { data, license } = card
  const fields = {
    base_model: card.baseModel,
    library_name: 'transformers',
    license,
    pipeline_tag: 'image-text-to-text',
    tags: ['image-segmentation', card.method, 'roundtrip'],
    datasets: /^[\w.-]+\/[\w.-]+$/.test(data.name) ? [data.name] : undefined,
    'model-index': modelIndex(card),
  }
  return `---\n${stringify(fields, { defaultStringType: 'QUOTE_DOUBLE', defaultKeyType: 'PLAIN', lineWidth: 0 })}---`
}

/** Metrics as the hub's leaderboards read them. */
function modelIndex({ name, data, after = {} }: ModelCard) {
  const metrics = Object.entries(after).filter(([, { mean }]) => Number.isFinite(mean))
  if (metrics.length === 0) return undefined
  const result = {
    task: { type: 'image-text-to-text' },
    dataset: { name: `${data.name}, held out`, type: data.name },
    metrics: metrics.map(([metric, { mean }]) => ({ name: metric, type: metric, value: mean })),
  }
  return [{ name, results: [result] }]
}

function withRange(v: Interval | undefined): string {
  if (!v) return 'none'
  return Number.isNaN(v.low) ? digits(v.mean) : `${digits(v.mean)} [${digits(v.low)}, ${digits(v.high)}]`
}

function change(before: Interval | undefined, after: Interval | undefined): string {
  if (!before || !after) return ''
  const by = after.mean - before.mean
  const size = digits(Math.abs(by))
  const sign = Number(size) === 0 ? '' : by < 0 ? '-' : '+'
  if (Number.isNaN(before.low) || Number.isNaN(after.low)) return `${sign}${size}`
  return `${sign}${size}, intervals ${apartFrom(before, after) ? 'apart' : 'overlap'}`
}

function results({ before = {}, after = {}, evalRecords }: ModelCard): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  if (names.length === 0) return ['The run did not evaluate these weights.']
  const rows = names.map((name) => {
    return `| ${plain(name)} | ${withRange(before[name])} | ${withRange(after[name])} | ${change(before[name], after[name])} |`
  })
  const over = evalRecords ? `${evalRecords} records that were not trained on` : 'Records that were not trained on'
  const note = smallSampleNote(evalRecords ?? Number.POSITIVE_INFINITY)
  return [
    `${over}; brackets are bootstrap 95 % intervals.${note ? ` Note: ${note}.` : ''}`,
    '',
    '| metric | before | after | change |',
    '|---|---|---|---|',
    ...rows,
  ]
}

const table = (rows: readonly (readonly [string, string])[]): string[] => [
  '| | |',
  '|---|---|',
  ...rows.map(([key, value]) => `| ${plain(key)} | ${plain(value)} |`),
]

const methods = {
  grpo: 'trained with GRPOSTEPS by roundtrip: answers are rewarded by how well they lead back to what was asked about.',
  sft: 'fine-tunedSTEPS by roundtrip on captions and masks of records.',
}

export function modelCard(card: ModelCard): string {
  const { data } = card
  const of = (count: number | undefined, text: string) => (count ? [`${count} ${text}`] : [])
  const counts = [
    ...of(data.records, 'records'),
    ...of(data.trained, 'to train on'),
    ...of(data.heldOut, 'held out'),
    ...of(data.evaluated, data.heldOut ? 'of them evaluated' : 'evaluated'),
  ]
  const steps = card.steps === undefined ? '' : ` in ${counted(card.steps, 'step')}`
  const sections: string[][] = [
    [head(card)],
    [`# ${plain(card.name)}`],
    [`${plain(card.baseModel)}, ${methods[card.method].replace('STEPS', steps)}`],
    card.picture ? [`![${plain(card.picture.text)}](${encodeURI(card.picture.file)})`] : [],
    ['## Before and after', '', ...results(card)],
    ['## Data', '', `${plain(data.name)}${counts.length > 0 ? `: ${counts.join(', ')}` : ''}.`],
    ['## Recipe', '', ...table(card.recipe)],
    card.command && card.command.length > 0
      ? ['## Command', '', fenced(['roundtrip', ...card.command].map(shellWord).join(' '), 'sh')]
      : [],
    [
      '## Loading',
      ...card.loading.flatMap(({ title, language, code }) => ['', `${plain(title)}:`, '', fenced(code, language)]),
    ],
    ['## Versions', '', ...table(card.versions)],
    card.license ? [] : ['## Licence', '', 'That of the base model; see its model card.'],
  ]
  return `${sections
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'))
    .join('\n\n')}\n`
}
