import { basename, join } from 'node:path'
import { fileBelow } from '../core/index.ts'
import {
  type FollowedRun,
  followWhole,
  maxImageBytes,
  type Run,
  runFiles,
  type Shown,
  selectSamples,
} from '../tracking/index.ts'
import { behaviourSection } from './behaviour.ts'
import { header } from './facts.ts'
import { card } from './markup/card.ts'
import { lineChart, smooth } from './markup/chart.ts'
import { type CurveRun, curvesOf, isBytes, isFirst, type Metric, metricsOf, slotAt } from './markup/curves.ts'
import { evaluations } from './markup/evaluations.ts'
import { html, type Markup } from './markup/html.ts'
import { meaningOf } from './markup/metrics.ts'
import { noticeTables } from './markup/tables.ts'
import { page } from './page.ts'
import { tryImage } from './picture.ts'
import { MaskPaths, runView, sampleView, undrawnMasks } from './views.ts'

const shownOfEach = 4

/**
 * The whole run as one page that needs nothing beside it. The same folder gives the same bytes. The live page has the same
 * tables and samples: markup/.
 */
export async function renderReport(run: Run): Promise<string> {
  const followed = followWhole(run.dir)
  const missing = new Set<string>()
  const shown = await rollouts(followed, missing)
  const behaviour = await behaviourSection(followed, ({ image }) => imageUri(run, image, missing))
  const view = runView({ id: '', run: followed })
  const problemTexts = [...new Set([...run.problems, ...view.problemTexts, ...missing])]
  return page(run.name, [
    header(run, followed.tasks, behaviour.alarms),
    html`<section><h2>Evaluation</h2>${evaluations([{ label: run.name, evals: view.evals, note: view.evalNote }])}</section>`,
    html`<section><h2>Behaviour</h2>${behaviour.body}</section>`,
    curves(followed),
    shown,
    html`<section><h2>Warnings</h2><div class="card scroll">${noticeTables({ ...view, problemTexts })}</div></section>`,
  ])
}

/** Every logged metric over the steps, all tasks in one chart. */
function curves(run: FollowedRun): Markup {
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

/** The image as a data address, or undefined where it was not kept. Only files directly under images/ are read. */
async function imageUri(
  run: { dir: string },
  name: string | undefined,
  problems: Set<string>,
): Promise<string | undefined> {
  if (!name) return undefined
  const path = basename(name) === name ? fileBelow(join(run.dir, runFiles.images), name, maxImageBytes) : null
  if (path !== null) return tryImage(path, name, problems)
  problems.add(`the image ${name} is not in the run folder`)
  return undefined
}

/** Colours of masks and points. */
function legendOf(shown: readonly Shown[]): Markup {
  const masks = shown.filter((item) => item.kind === 'mask')
  const key = (by: Shown['by'], title: string) =>
    masks.some((item) => item.by === by) ? html`<span><i class="key ${by}"></i>${title}</span>` : undefined
  const judge = masks.find((item) => item.by === 'judge')?.name ?? 'of the judge'
  const dots = shown.some((item) => item.kind === 'points')
    ? html`<span><i class="key confused"></i>confused region</span><span><i class="dot"></i>positive point</span><span><i class="dot negative"></i>negative point</span>`
    : undefined
  return html`<div class="legend">${key('record', 'of the record')}${key('policy', 'of the policy')}${key('ema', 'of the EMA copy')}${key('judge', judge)}${dots}</div>`
}

/** Best and worst rollouts of each task with their masks, at most one of each record. */
async function rollouts(run: FollowedRun, problems: Set<string>): Promise<Markup> {
  const { samples, tasks } = run
  const paths = new MaskPaths()
  const blocks: Markup[] = []
  const shown: Shown[] = []
  for (const task of [...samples.tasks.list].sort()) {
    blocks.push(html`<h2>${tasks.find(({ name }) => name === task)?.title ?? task}</h2>`)
    for (const [title, order] of [['Highest rewards', 'best'] as const, ['Lowest rewards', 'worst'] as const]) {
      const chosen = selectSamples(samples, { task, order, onePerRecord: true, limit: shownOfEach })
      const cards: Markup[] = []
      for (const sample of samples.read(chosen.rows)) {
        const view = sampleView(sample, paths)
        shown.push(...sample.shown)
        for (const problem of undrawnMasks(view)) problems.add(problem)
        cards.push(card(view, { image: await imageUri(run, sample.image, problems) }))
      }
      blocks.push(html`<h3>${title}</h3><div class="rollouts">${cards}</div>`)
    }
  }
  const counts = `${samples.count} sampled completions, ${samples.count - samples.numScored} not scored, ${samples.numTruncated} cut at the longest length. At most one of each record is shown.`
  return html`<section><h2>Rollouts</h2><p>${counts}</p>${shown.length > 0 ? legendOf(shown) : undefined}${blocks}</section>`
}
