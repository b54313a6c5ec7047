import type { Run } from '../tracking/index.ts'
import { lineChart, type Point, type Series } from './chart.ts'
import { html, type Markup } from './html.ts'

/** What a reader looks at first, in this order; everything else is folded away below. */
const first =
  'reward_mean reward rewards/iou/mean rewards/meteor/mean rewards/judge/mean total_loss loss policy_loss kl_div kl entropy frac_reward_zero_std reward_std reward_group_std completions/mean_length completions/clipped_ratio grad_norm learning_rate step_time'.split(
    ' ',
  )
/** Given by a schedule or counted: smoothing would only bend them. */
const exact = ['learning_rate', 'epoch', 'num_tokens']
const labels: Record<string, string> = { loop1: 'loop 1', loop2: 'loop 2' }

function slotOf(loop: string): Series['slot'] {
  return loop === 'loop1' ? 1 : loop === 'loop2' ? 2 : 3
}

/** 'loop1/kl' -> ['loop1', 'kl']; a name without a loop belongs to the whole run. */
export function splitKey(key: string): [string, string] {
  const loop = /^(loop\d+)\//.exec(key)?.[1]
  return loop ? [loop, key.slice(loop.length + 1)] : ['', key]
}

/** Figure -> its curves, one a loop; steps written twice (after a resume) count once, the last time. */
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
  const figures = new Map<string, Series[]>()
  for (const [key, byStep] of [...values].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const [loop, name] = splitKey(key)
    const points: Point[] = [...byStep].map(([step, value]) => ({ step, value })).sort((a, b) => a.step - b.step)
    const series: Series = {
      name: labels[loop] ?? (loop || name),
      slot: slotOf(loop),
      points,
      exact: exact.includes(name),
    }
    figures.set(name, [...(figures.get(name) ?? []), series])
  }
  return figures
}

function rank(name: string): number {
  const at = first.indexOf(name)
  return at < 0 ? first.length : at
}

/** Every logged figure over the steps, both loops in one frame. */
export function curves(run: Run): Markup {
  const figures = [...seriesOf(run)].sort(([a], [b]) => rank(a) - rank(b))
  if (figures.length === 0) return html`<section><h2>Curves</h2><p>No step has been logged yet.</p></section>`
  const draw = (which: typeof figures) => which.map(([name, series]) => lineChart(name, series))
  const main = figures.filter(([name]) => rank(name) < first.length)
  const rest = figures.filter(([name]) => rank(name) === first.length)
  const more =
    rest.length > 0
      ? html`<details${main.length === 0 ? html` open` : undefined}><summary>${rest.length} more figures</summary><div class="charts" style="margin-top:12px">${draw(rest)}</div></details>`
      : undefined
  return html`<section><h2>Curves</h2><div class="legend"><span><i class="key s1"></i>loop 1: mask, caption, mask</span><span><i class="key s2"></i>loop 2: caption, mask, caption</span><span><i class="key s3"></i>whole run</span><span>thin: each step, thick: smoothed</span></div><div class="charts">${draw(main)}</div>${more}</section>`
}
