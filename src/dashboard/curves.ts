import { type Run, runTasks } from '../tracking/index.ts'
import { lineChart, type Point, type Series } from './markup/chart.ts'
import { html, type Markup } from './markup/html.ts'
import { exactMetrics, firstMetrics, meaningOf, rank, splitKey } from './markup/metrics.ts'

/** Colour slot of a task: by its place in the run's list; beyond the slots, and for the whole run, the last one. */
function slotOf(at: number): Series['slot'] {
  return at === 0 ? 1 : at === 1 ? 2 : 3
}

/** Figure -> its curves, one a task; steps written twice (after a resume) count once, the last time. */
export function seriesOf(run: Run): Map<string, Series[]> {
  const values = new Map<string, Map<number, number>>()
  for (const { t, step, metrics = {} } of [...run.events.filter((e) => e.t === 'step'), ...run.timing]) {
    if (t !== 'step') continue
    for (const [key, value] of Object.entries(metrics)) {
      const known = values.get(key)
      if (known) known.set(step, value)
      else values.set(key, new Map([[step, value]]))
    }
  }
  const tasks = runTasks(run)
  const figures = new Map<string, Series[]>()
  for (const [key, byStep] of [...values].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const { task, at, name } = splitKey(key, tasks)
    const points: Point[] = [...byStep].map(([step, value]) => ({ step, value })).sort((a, b) => a.step - b.step)
    const series: Series = {
      name: task?.name ?? name,
      slot: slotOf(at),
      points,
      exact: exactMetrics.includes(name),
    }
    figures.set(name, [...(figures.get(name) ?? []), series])
  }
  return figures
}

/** Every logged figure over the steps, all tasks in one frame. */
export function curves(run: Run): Markup {
  const figures = [...seriesOf(run)].sort(([a], [b]) => rank(a) - rank(b))
  if (figures.length === 0) return html`<section><h2>Curves</h2><p>No step has been logged yet.</p></section>`
  const draw = (which: typeof figures) => which.map(([name, series]) => lineChart(name, series, meaningOf(name)))
  const main = figures.filter(([name]) => rank(name) < firstMetrics.length)
  const rest = figures.filter(([name]) => rank(name) === firstMetrics.length)
  const more =
    rest.length > 0
      ? html`<details${main.length === 0 ? html` open` : undefined}><summary>${rest.length} more figures</summary><div class="charts" style="margin-top:12px">${draw(rest)}</div></details>`
      : undefined
  const legend = runTasks(run).map(({ title }, at) => html`<span><i class="key s${slotOf(at)}"></i>${title}</span>`)
  return html`<section><h2>Curves</h2><div class="legend">${legend}<span><i class="key s3"></i>whole run</span><span>thin: each step, thick: smoothed</span></div><div class="charts">${draw(main)}</div>${more}</section>`
}
