import type { FollowedRun } from '../tracking/index.ts'
import { lineChart, smooth } from './markup/chart.ts'
import { type CurveRun, curvesOf, isBytes, isFirst, type Metric, metricsOf, slotAt } from './markup/curves.ts'
import { html, type Markup } from './markup/html.ts'
import { meaningOf } from './markup/metrics.ts'

/** Every logged metric over the steps, all tasks in one chart. */
export function curves(run: FollowedRun): Markup {
  const { tasks, timing } = run
  const logged = new Set(run.metrics.names)
  const metrics = metricsOf([run], () => [...logged, ...timing.names].sort())
  if (metrics.length === 0) return html`<section><h2>Curves</h2><p>No step has been logged yet.</p></section>`
  const seriesOf = (key: string) => (logged.has(key) ? run.metrics : timing).series(key)
  const shown: CurveRun = { label: run.name, tasks, seriesOf }
  const draw = (some: readonly Metric[]) =>
    some.map((metric) => {
      const options = { inBytes: isBytes(metric.name) }
      return lineChart(metric.name, curvesOf(metric, [shown], smooth), options, meaningOf(metric.name))
    })
  const main = metrics.filter(isFirst)
  const rest = metrics.filter((metric) => !isFirst(metric))
  const more =
    rest.length > 0
      ? html`<details${main.length === 0 ? html` open` : undefined}><summary>${rest.length} more metrics</summary><div class="charts" style="margin-top:12px">${draw(rest)}</div></details>`
      : undefined
  const legend = tasks.map(({ title }, at) => html`<span><i class="key s${slotAt(at)}"></i>${title}</span>`)
  return html`<section><h2>Curves</h2><div class="legend">${legend}<span><i class="key s0"></i>whole run</span><span>thin: each step, thick: smoothed</span></div><div class="charts">${draw(main)}</div>${more}</section>`
}
