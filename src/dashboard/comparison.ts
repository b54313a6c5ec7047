// Two models on the same sentences as a page: the change of each metric, and the sentences that moved most with their masks.
import type { Interval, Pairs, ReadSample, Shown } from '../tracking/index.ts'
import { picture, words } from './markup/card.ts'
import { html, type Markup } from './markup/html.ts'
import { whiskerPlot } from './markup/whiskers.ts'
import { page } from './page.ts'
import { tryImage } from './picture.ts'
import { MaskPaths, sampleView, undrawnMasks } from './views.ts'

/** One sentence under both models. */
export interface ComparedSentence {
  id: string
  text: string
  /** Path of the image, or a data address; null: it is not known. */
  image: string | null
  /** IoU or main metric of each, and what there is to see: the target and the answer. */
  sides: readonly { iou: number; shown: readonly Shown[] }[]
}

export interface ComparisonPage extends Pick<Pairs, 'wins' | 'losses' | 'ties'> {
  title: string
  /** Names of the two, first and second. */
  names: readonly [string, string]
  facts: readonly string[]
  metrics: readonly { name: string; before: number; after: number; change: Interval }[]
  /** What is counted, and what is resampled. */
  about?: { each: string; metric: string; unit: string }
  /** Largest gain first, and largest loss first. */
  gained: readonly ComparedSentence[]
  lost: readonly ComparedSentence[]
}

const percent = (value: number) => (Number.isFinite(value) ? (100 * value).toFixed(1) : String(value))
const signed = (value: number) => `${value < 0 ? '\u2212' : '+'}${percent(Math.abs(value))}`

function verdict({ low, high }: Interval): [className: string, words: string] {
  if (low > 0) return ['up', 'the interval is above 0']
  return high < 0 ? ['down', 'the interval is below 0'] : ['flat', 'the interval has 0 in it']
}

function metricRow({ name, before, after, change }: ComparisonPage['metrics'][number], widest: number): Markup {
  const [className, words] = verdict(change)
  const whisker = { mean: 100 * change.mean, low: 100 * change.low, high: 100 * change.high, name, slot: 1 as const }
  const plot = whiskerPlot([whisker], -100 * widest, 100 * widest)
  return html`<tr><td><b>${name}</b></td><td class="number">${percent(before)}</td><td class="number">${percent(after)}</td><td class="number"><span class="${className}">${signed(change.mean)}</span> <small>[${signed(change.low)}, ${signed(change.high)}]</small></td><td>${words}</td><td class="plot">${plot}</td></tr>`
}

const usual = { each: 'sentences', metric: 'IoU', unit: 'images' }

function metricTable({ metrics: rows, names, about = usual }: ComparisonPage): Markup {
  const ends = rows.flatMap(({ change }) => [change.low, change.high, change.mean]).filter(Number.isFinite)
  const widest = Math.max(0.01, ...ends.map(Math.abs))
  return html`<section><h2>Metrics</h2><p>Percent. The interval of the change is a paired bootstrap over ${about.unit}: both models are resampled together, 95 %.</p><div class="eval card"><table><thead><tr><th>metric</th><th>${names[0]}</th><th>${names[1]}</th><th>change</th><th></th><th></th></tr></thead><tbody>${rows.map((row) => metricRow(row, widest))}</tbody></table></div></section>`
}

const paths = new MaskPaths()

async function card(
  sentence: ComparedSentence,
  { names, about = usual }: ComparisonPage,
  problems: Set<string>,
): Promise<Markup> {
  const { id, text, image } = sentence
  const uri =
    image === null || image.startsWith('data:') ? (image ?? undefined) : await tryImage(image, image, problems)
  const sides = sentence.sides.map(({ iou, shown }, i) => {
    const view = sampleView({ id, step: 0, shown } as unknown as ReadSample, paths)
    for (const problem of undrawnMasks(view)) problems.add(problem)
    const said = view.shown.filter(({ by }) => by === 'policy').map((item) => words(item))
    const title = html`<div class="small">${names[i]}: ${about.metric} ${percent(iou)}</div>`
    return html`${picture(view, uri, undefined, id)}${title}${said}`
  })
  return html`<article class="rollout"><blockquote>${text}</blockquote><div class="small">${id}</div>${sides}</article>`
}

async function cards(title: string, rows: readonly ComparedSentence[], data: ComparisonPage, problems: Set<string>) {
  const shown: Markup[] = []
  for (const row of rows) shown.push(await card(row, data, problems))
  return shown.length === 0 ? undefined : html`<h3>${title}</h3><div class="rollouts">${shown}</div>`
}

export async function renderComparison(data: ComparisonPage): Promise<string> {
  const problems = new Set<string>()
  const gained = await cards('Gained most', data.gained, data, problems)
  const lost = await cards('Lost most', data.lost, data, problems)
  const { each } = data.about ?? usual
  const counts = `${data.names[1]} is better on ${data.wins} ${each}, worse on ${data.losses}, equal on ${data.ties}.`
  const legend = html`<div class="legend"><span><i class="key record"></i>target</span><span><i class="key policy"></i>predicted</span></div>`
  const wrong = [...problems].map((text) => html`<p class="problem">${text}</p>`)
  return page(data.title, [
    html`<header><h1>${data.title}</h1>${data.facts.map((fact) => html`<p>${fact}</p>`)}</header>`,
    metricTable(data),
    html`<section><h2>${each[0]!.toUpperCase()}${each.slice(1)}</h2><p>${counts}</p>${legend}${gained}${lost}${wrong}</section>`,
  ])
}
