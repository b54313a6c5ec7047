// Held-out metrics before and after with their 95 % intervals, of one run or of several.

import type { Interval } from '../../tracking/index.ts'
import { lineChart, smooth } from './chart.ts'
import { html, type Markup } from './html.ts'
import { counted, numberOf } from './metrics.ts'
import type { EvalView } from './view-types.ts'
import { whiskerPlot } from './whiskers.ts'

export interface EvaluatedRun {
  label: string
  evals: readonly EvalView[]
  /** What to know about intervals of few records; empty: nothing. */
  note: string
}

/** Three digits after the point for shares, fewer for large numbers. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  return Math.abs(value) < 10 ? value.toFixed(3) : value.toPrecision(4)
}

/** The rounds called 'before' and 'after', or else the first and the last. */
function ends(evals: readonly EvalView[]): { before?: EvalView; after?: EvalView } {
  const before = evals.find((e) => e.name === 'before') ?? evals[0]
  const after = evals.findLast((e) => e.name === 'after') ?? evals.at(-1)
  return { before, after: after === before ? undefined : after }
}

function intervalOf(round: EvalView | undefined, key: string): Interval | undefined {
  const raw = round?.metrics[key]
  return raw && { mean: numberOf(raw.mean), low: numberOf(raw.low), high: numberOf(raw.high) }
}

/** One record has no interval. */
function withRange(v: Interval | undefined): Markup {
  if (!v) return html`<small>none</small>`
  const range = Number.isNaN(v.low) ? undefined : html` <small>[${digits(v.low)}, ${digits(v.high)}]</small>`
  return html`${digits(v.mean)}${range}`
}

function change(before: Interval | undefined, after: Interval | undefined): Markup | undefined {
  if (!before || !after) return undefined
  const by = after.mean - before.mean
  const apart = after.low > before.high ? 'up' : after.high < before.low ? 'down' : 'flat'
  const known = !Number.isNaN(before.low) && !Number.isNaN(after.low)
  const words = !known ? 'no interval' : apart === 'flat' ? 'intervals overlap' : 'intervals apart'
  return html`<span class="${apart}">${by < 0 ? '−' : '+'}${digits(Math.abs(by))}</span> <small>${words}</small>`
}

/** Long names are broken after a stroke, never inside a word. */
const breakable = (name: string) => name.split(/(?<=[/_])/).map((part) => html`<span>${part}</span>`)

function row(key: string, { label, evals }: EvaluatedRun, several: boolean): Markup {
  const { before, after } = ends(evals)
  const [a, b] = [intervalOf(before, key), intervalOf(after, key)]
  const of = several ? `${label} ` : ''
  const drawn = [
    ...(a ? [{ ...a, name: `${of}before`, slot: 0 as const }] : []),
    ...(b ? [{ ...b, name: `${of}after`, slot: 1 as const }] : []),
  ]
  const values = drawn.flatMap((v) => [v.mean, v.low, v.high]).filter(Number.isFinite)
  const plot = whiskerPlot(drawn, Math.min(0, ...values), Math.max(1, ...values))
  const name = html`<b class="name">${breakable(key)}</b>${several ? html` <small>${label}</small>` : undefined}`
  return html`<tr><td>${name}</td><td class="number" data-name="before">${withRange(a)}</td><td class="number" data-name="after">${b && withRange(b)}</td><td class="number" data-name="change">${change(a, b)}</td><td class="plot">${plot}</td></tr>`
}

function aboutOf({ label, evals, note }: EvaluatedRun, several: boolean): Markup {
  const { before, after } = ends(evals)
  const steps = after ? `step ${before!.step} against step ${after.step}` : `step ${before!.step}`
  return html`<p>${several ? `${label}: ` : ''}${counted(before!.records, 'held-out record')}, ${steps}.${note ? ` Note: ${note}.` : ''}</p>`
}

function history({ label, evals }: EvaluatedRun, several: boolean): Markup | undefined {
  if (evals.length < 3) return undefined
  const keys = [...new Set(evals.flatMap((e) => Object.keys(e.metrics)))]
  const charts = keys.map((key) => {
    const rounds = evals.filter((e) => e.metrics[key])
    const values = rounds.map((e) => numberOf(e.metrics[key]!.mean))
    const curve = { label: key, slot: 1, steps: rounds.map(({ step }) => step), values: smooth(values), raw: values }
    return lineChart(key, [curve], {})
  })
  return html`<details><summary>${several ? `${label}: ` : ''}all ${evals.length} rounds over the steps</summary><div class="charts">${charts}</div></details>`
}

export function evaluations(all: readonly EvaluatedRun[]): Markup {
  const runs = all.filter(({ evals }) => evals.length > 0)
  if (runs.length === 0) return html`<p>No evaluation yet.</p>`
  const several = runs.length > 1
  const keys = [...new Set(runs.flatMap(({ evals }) => evals.flatMap((e) => Object.keys(e.metrics))))]
  const rows = keys.flatMap((key) => runs.filter(({ evals }) => evals.some((e) => e.metrics[key])).map((run) => row(key, run, several))) // biome-ignore format: one line
  return html`<p>Whiskers are bootstrap 95 % intervals, axes from 0 to 1 where the metric is a share.</p>${runs.map((run) => aboutOf(run, several))}<div class="legend"><span><i class="key dot before"></i>before</span><span><i class="key dot after"></i>after</span></div><div class="eval card"><table><thead><tr><th scope="col">metric</th><th scope="col">before</th><th scope="col">after</th><th scope="col">change</th><th scope="col">plot</th></tr></thead><tbody>${rows}</tbody></table></div>${runs.map((run) => history(run, several))}`
}
