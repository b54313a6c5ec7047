// Answers of the live page's server: plain data from followed runs, text and numbers, never markup.
import { messageOf } from '../core/index.ts'
import {
  type FollowedRun,
  type MaskRle,
  maskPath,
  type ReadSample,
  type SampleQuery,
  type Shown,
  selectSamples,
  smallSampleNote,
  startFacts,
} from '../tracking/index.ts'
import { flatten } from './facts.ts'
import type { MaskView, NoticeKind, NoticeView, SampleView } from './markup/view-types.ts'
import type { WatchedRun } from './run-watcher.ts'

/** A run without an end event counts as broken after this long, and 20 steps, without a new line. */
const quietMs = 120_000
const noticesShown = 200

function stateOf(run: FollowedRun, now: number): 'running' | 'ended' | 'quiet' {
  if (run.end) return 'ended'
  const patience = Math.max(quietMs, 20_000 * (run.timing.last('step_time') ?? 0))
  return now - (run.lastSign ?? 0) < patience ? 'running' : 'quiet'
}

function totalOf(run: FollowedRun): number {
  const { total } = startFacts(run.events)
  return typeof total === 'number' && Number.isFinite(total) ? total : 0
}

export type RunSummary = ReturnType<typeof summaryOf>

export function summaryOf({ id, run }: WatchedRun, now = Date.now()) {
  return {
    id,
    name: run.name,
    folder: run.dir,
    state: stateOf(run, now),
    reason: run.end?.reason ?? '', // empty while it has not ended
    step: run.lastStep,
    total: totalOf(run), // steps the run is to make; 0 if it does not say
    samples: run.samples.count,
    samplesWhole: run.samplesWhole, // false while samples are still being indexed
    notices: run.events.reduce((n, e) => n + (e.t === 'warning' ? e.count : 0), 0),
    problems: run.problems.length,
    version: run.version,
    samplesVersion: run.samplesVersion,
    tasks: run.tasks,
    records: run.samples.records.list.length, // that have samples
    rewardParts: run.samples.parts,
  }
}

function noticeKinds(list: readonly NoticeView[]): NoticeKind[] {
  const kinds = new Map<string, NoticeKind>()
  for (const { kind, count, step } of list) {
    const known = kinds.get(kind) ?? { kind, count: 0, first: step, last: step }
    kinds.set(kind, { ...known, count: known.count + count, last: step })
  }
  return [...kinds.values()]
}

export type RunView = ReturnType<typeof runView>

export function runView(watched: WatchedRun) {
  const { run } = watched
  const { events } = run
  const notices = events.flatMap((e) => (e.t === 'warning' ? [e] : []))
  const evals = events.flatMap((e) => (e.t === 'eval' ? [e] : []))
  return {
    ...summaryOf(watched),
    facts: flatten(startFacts(events)),
    config: flatten(run.config),
    environment: flatten(run.environment),
    problemTexts: run.problems,
    metrics: run.metrics.names.sort(), // what the seed decides
    timing: run.timing.names.sort(), // what a clock decides
    evals,
    evalNote: evals[0] ? (smallSampleNote(evals[0].records) ?? '') : '',
    noticeKinds: noticeKinds(notices),
    noticeList: notices.slice(-noticesShown).reverse(), // newest first
    checkpoints: events.flatMap((e) => (e.t === 'checkpoint' ? [{ step: e.step, name: e.name }] : [])),
    resumes: run.sessions.filter(({ t }) => t === 'resume').length,
  }
}

const maxPaths = 2000

/** Outlines of masks. The last ones are kept: all samples of a record show the record's mask. */
export class MaskPaths {
  readonly #known = new Map<string, string>()

  view(mask: MaskRle | null, by: Shown['by'], name: string | undefined): MaskView {
    if (!mask) return { kind: 'mask', by, name, size: null, path: '', missing: 'no mask was drawn' }
    try {
      const path = this.#path(mask)
      return { kind: 'mask', by, name, size: mask.size, path, ...(path === '' && { missing: 'the mask is empty' }) }
    } catch (error) {
      const missing = `a mask could not be drawn: ${messageOf(error)}`
      return { kind: 'mask', by, name, size: null, path: '', missing }
    }
  }

  #path(mask: MaskRle): string {
    const key = `${mask.size.join()} ${mask.counts}`
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const path = maskPath(mask, mask.size[1], mask.size[0])
    if (this.#known.size >= maxPaths) this.#known.delete(this.#known.keys().next().value!)
    this.#known.set(key, path)
    return path
  }
}

export type SamplesView = ReturnType<typeof samplesView>

export function samplesView(run: FollowedRun, query: SampleQuery, paths: MaskPaths) {
  const { count, rows } = selectSamples(run.samples, query)
  const samples = run.samples.read(rows).map((sample) => sampleView(sample, paths))
  return { count, whole: run.samplesWhole, samples }
}

export function sampleView(sample: ReadSample, paths: MaskPaths): SampleView {
  const { text, answer, reference, given, made, madeBy, ...rest } = sample
  const shown = sample.shown.map((item) => (item.kind === 'mask' ? paths.view(item.mask, item.by, item.name) : item))
  return { ...rest, shown }
}

/** Why masks of a sample could not be drawn. */
export const undrawnMasks = ({ shown }: SampleView): string[] =>
  shown.flatMap((item) => (item.kind === 'mask' && item.missing?.startsWith('a mask') ? [item.missing] : []))

/** Ids of records that contain the words, in order of appearance. */
export function recordsView(run: FollowedRun, words: string, limit = 50): string[] {
  const found: string[] = []
  const wanted = words.toLowerCase()
  for (const id of run.samples.records.list) {
    if (found.length >= limit) break
    if (id.toLowerCase().includes(wanted)) found.push(id)
  }
  return found
}

/** A spreadsheet takes a cell that begins with one of these for a formula. */
const formula = /^[=+\-@\t\r]/

function cell(text: string): string {
  const safe = formula.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}

/** Every step of the named metrics, a column each. With several runs a column's title has the run's name; empty: no value. */
export function csvOf(runs: readonly FollowedRun[], names: readonly string[]): string {
  const columns = runs.flatMap((run) => {
    const known = new Set([...run.metrics.names, ...run.timing.names])
    const own = names.filter((name) => runs.length === 1 || known.has(name))
    return own.map((name) => {
      const { steps, values } = (run.metrics.names.includes(name) ? run.metrics : run.timing).series(name)
      const title = runs.length === 1 ? name : `${run.name}: ${name}`
      return { title, values: new Map(steps.map((step, i) => [step, values[i]!])) }
    })
  })
  const steps = [...new Set(columns.flatMap(({ values }) => [...values.keys()]))].sort((a, b) => a - b)
  const rows = steps.map((step) => [step, ...columns.map(({ values }) => values.get(step) ?? '')].join(','))
  return `${[['step', ...columns.map(({ title }) => cell(title))].join(','), ...rows].join('\r\n')}\r\n`
}
