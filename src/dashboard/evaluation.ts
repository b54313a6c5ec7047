import { apartFrom, type EvalEvent, type Interval, type Run, smallSampleNote } from '../tracking/index.ts'
import { lineChart, whiskerPlot } from './chart.ts'
import { html, type Markup } from './html.ts'

/** Three digits behind the point for shares, fewer for large figures. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return String(value)
  return Math.abs(value) < 10 ? value.toFixed(3) : value.toPrecision(4)
}

export function evalsOf(run: Run): EvalEvent[] {
  return run.events.filter((e) => e.t === 'eval')
}

/** The rounds called 'before' and 'after', or else the first and the last. */
function ends(evals: readonly EvalEvent[]): { before?: EvalEvent; after?: EvalEvent } {
  const before = evals.find((e) => e.name === 'before') ?? evals[0]
  const after = evals.findLast((e) => e.name === 'after') ?? evals.at(-1)
  return { before, after: after === before ? undefined : after }
}

function withRange(v: Interval | undefined): Markup {
  if (!v) return html`<small>none</small>`
  return Number.isNaN(v.low)
    ? html`${figure(v.mean)}`
    : html`${figure(v.mean)} <small>[${figure(v.low)}, ${figure(v.high)}]</small>`
}

function change(before: Interval | undefined, after: Interval | undefined): Markup {
  if (!before || !after) return html``
  const by = after.mean - before.mean
  const apart = { higher: 'up', lower: 'down', none: 'flat' }[apartFrom(before, after) ?? 'none']
  const known = !Number.isNaN(before.low) && !Number.isNaN(after.low)
  const words = !known ? 'no interval' : apart === 'flat' ? 'intervals overlap' : 'intervals apart'
  return html`<span class="${apart}">${by < 0 ? '−' : '+'}${figure(Math.abs(by))}</span> <small>${words}</small>`
}

/** [0, 1] for shares; else all that is drawn. */
function axisOf(intervals: readonly Interval[]): [number, number] {
  const values = intervals.flatMap((v) => [v.mean, v.low, v.high]).filter(Number.isFinite)
  const [low, high] = [Math.min(0, ...values), Math.max(1, ...values)]
  return [low, high]
}

/** Long names are broken behind a stroke, never inside a word. */
const breakable = (name: string) => name.split(/(?<=[/_])/).map((part) => html`<span>${part}</span>`)

function row(key: string, before: EvalEvent, after: EvalEvent | undefined): Markup {
  const [a, b] = [before.metrics[key], after?.metrics[key]]
  const drawn = [
    ...(a ? [{ ...a, name: 'before', slot: 0 as const }] : []),
    ...(b ? [{ ...b, name: 'after', slot: 1 as const }] : []),
  ]
  const [low, high] = axisOf(drawn)
  return html`<tr><td><b class="name">${breakable(key)}</b></td><td class="number" data-name="before">${withRange(a)}</td>${after && html`<td class="number" data-name="after">${withRange(b)}</td><td class="number" data-name="change">${change(a, b)}</td>`}<td class="plot">${whiskerPlot(drawn, low, high)}</td></tr>`
}

/** Held-out figures before and after with their 95 % intervals. */
export function evaluation(run: Run): Markup {
  const evals = evalsOf(run)
  const { before, after } = ends(evals)
  if (!before) return html`<section><h2>Evaluation</h2><p>No evaluation in this run.</p></section>`
  const keys = [...new Set([before, after].flatMap((e) => Object.keys(e?.metrics ?? {})))]
  const about = after
    ? `${before.records} held-out records, step ${before.step} against step ${after.step}. Whiskers are bootstrap 95 % intervals, axes from 0 to 1 where the figure is a share.`
    : `${before.records} held-out records at step ${before.step}. Whiskers are bootstrap 95 % intervals.`
  const note = smallSampleNote(before.records)
  const legend =
    after &&
    html`<div class="legend"><span><i class="key dot before"></i>before</span><span><i class="key dot after"></i>after</span></div>`
  return html`<section><h2>Evaluation</h2><p>${about}${note ? ` Note: ${note}.` : ''}</p>${legend}<div class="eval card"><table><thead><tr><th>figure</th><th>before</th>${after && html`<th>after</th><th>change</th>`}<th></th></tr></thead><tbody>${keys.map((key) => row(key, before, after))}</tbody></table></div>${evals.length > 2 ? history(evals, keys) : undefined}</section>`
}

function history(evals: readonly EvalEvent[], keys: readonly string[]): Markup {
  const charts = keys.map((key) => {
    const points = evals.flatMap((e) => (e.metrics[key] ? [{ step: e.step, value: e.metrics[key].mean }] : []))
    return lineChart(key, [{ name: key, slot: 1, points }])
  })
  return html`<details><summary>All ${evals.length} rounds over the steps</summary><div class="charts" style="margin-top:12px">${charts}</div></details>`
}
