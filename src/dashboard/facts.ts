import { clock, quantile, type Run, short, startFacts, type TaskName } from '../tracking/index.ts'
import { type Content, html, type Markup } from './markup/html.ts'
import { settingTable } from './markup/tables.ts'

/** Settings worth a place at the top, by the last part of their name; spelled without case and underscores. */
const chosen =
  'seed model datapath train batchsize maxsteps epochs numgenerations maxcompletionlength temperature losstype beta learningrate emadecay rank action actionstd maskloss preset mode maxpoints'.split(
    ' ',
  )
const secret = /(api_?key|secret|password|token|authorization)$/i

/** Levels of settings that are shown; a damaged file may have thousands. */
const maxDepth = 32

/** 'a.b.c' -> value as text, in the order of the file. */
export function flatten(value: unknown, prefix = '', depth = 0): [string, string][] {
  if (typeof value !== 'object' || value === null) return [[prefix, leaf(prefix, value)]]
  if (depth > maxDepth) return [[prefix, '(nested too deeply)']]
  if (Array.isArray(value) && value.every((v) => typeof v !== 'object'))
    return [[prefix, value.map(String).join(prefix === 'command' ? ' ' : ', ')]]
  return Object.entries(value).flatMap(([key, v]) => flatten(v, prefix === '' ? key : `${prefix}.${key}`, depth + 1))
}

function leaf(key: string, value: unknown): string {
  if (typeof value === 'string' && value !== '' && secret.test(key)) return '(not shown)'
  const text = typeof value === 'string' ? value : String(value)
  return text.length > 300 ? `${text.slice(0, 300)}...` : text
}

/** Those worth a place at the top: set to something, and of no part that is switched off (`enabled: false`). */
export function chosenOf(settings: readonly [string, string][]): [string, string][] {
  const off = settings.flatMap(([key, value]) =>
    /\.enabled$/.test(key) && value === 'false' ? [key.slice(0, -7)] : [],
  )
  return settings.filter(([key, value]) => {
    const last = key.split('.').at(-1) ?? ''
    if (value === 'null' || value === 'default' || /^rewards\.\w+\.\w+/.test(key)) return false
    return chosen.includes(last.replaceAll('_', '').toLowerCase()) && !off.some((part) => key.startsWith(part))
  })
}

/** Time at work: from each start or resume to the last line before the next one. */
function workSeconds(run: Run): number {
  let total = 0
  let last: number | undefined
  for (const { t, time } of run.timing) {
    if (last !== undefined && t !== 'start' && t !== 'resume') total += time - last
    last = time
  }
  return total / 1000
}

function ending(run: Run): string {
  const last = run.events.at(-1)
  return last?.t === 'stop' ? last.reason : 'no end noted: running, or killed'
}

function runFacts(run: Run, tasks: readonly TaskName[]): [string, string][] {
  const began = run.timing[0]
  const seconds = run.timing.flatMap((l) => (l.t === 'step' ? (l.metrics?.step_time ?? []) : [])).sort((a, b) => a - b)
  const resumes = run.timing.filter((l) => l.t === 'resume').length
  const { total, tasks: _, ...facts } = startFacts(run.events)
  const made = run.events.reduce((n, e) => Math.max(n, e.t === 'step' ? e.step : 0), 0)
  const rows: [string, string][] = [
    ['steps', typeof total === 'number' && total !== made ? `${made} of ${total}` : String(made)],
    ['ended', ending(run)],
    ...tasks.map(({ name, title }): [string, string] => [name, title]),
    ...flatten(facts),
  ]
  if (began) rows.push(['started', `${new Date(began.time).toISOString().slice(0, 16).replace('T', ' ')} UTC`])
  if (began) rows.push(['time at work', clock(workSeconds(run))])
  if (seconds.length > 0) rows.push(['median step', `${short(quantile(seconds, 0.5))} s`])
  if (resumes > 0) rows.push(['resumed', resumes === 1 ? 'once' : `${resumes} times`])
  return rows
}

const list = (rows: readonly (readonly [string, string])[]): Content =>
  rows.map(([key, value]) => html`<div><dt>${key}</dt><dd>${value}</dd></div>`)

const shownTable = (title: string, rows: readonly (readonly [string, string])[]) =>
  html`<div class="card scroll">${settingTable(title, [{ name: 'value', rows }], true)}</div>`

/** Name of the run, what must be seen first, what it was, and all its settings folded away. */
export function header(run: Run, tasks: readonly TaskName[], first: Content): Markup {
  const config = flatten(run.config)
  return html`<header><h1>${run.name}</h1><div class="small">roundtrip training run</div>${first}
<dl class="facts card">${list(runFacts(run, tasks))}</dl>
<dl class="facts card">${list(chosenOf(config))}</dl>
<details><summary>All ${config.length} settings</summary>${shownTable('settings', config)}</details>
<details><summary>Environment</summary>${shownTable('environment', flatten(run.environment))}</details></header>`
}
