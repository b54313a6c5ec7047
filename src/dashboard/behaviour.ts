// What training did to the answers: alarms with pictures, a table before against after, words, and the records that changed most. One
// piece of markup for the report and the live page.
import { counted } from '../core/index.ts'
import {
  type Alarm,
  alarmText,
  type Behaviour,
  type BehaviourItem,
  behaviourOf,
  type FollowedRun,
  type Pair,
  type ReadSample,
  type SampleRef,
  type TaskBehaviour,
  valueText,
} from '../tracking/index.ts'
import { picture, words } from './markup/card.ts'
import { type Content, html, type Markup } from './markup/html.ts'
import { MaskPaths, sampleView } from './views.ts'

/** Address of a stored image; undefined: it cannot be shown. */
export type ImageAddress = (sample: ReadSample) => Promise<string | undefined>

class Pictures {
  readonly #paths = new MaskPaths()
  readonly #run: FollowedRun
  readonly #address: ImageAddress

  constructor(run: FollowedRun, address: ImageAddress) {
    this.#run = run
    this.#address = address
  }

  async card(ref: SampleRef, heldOut: boolean, caption: string): Promise<Markup | undefined> {
    const index = heldOut ? this.#run.evaluations : this.#run.samples
    const [sample] = index.read(index.rowsOf(ref))
    if (!sample) return undefined
    const view = sampleView(sample, this.#paths)
    const said = view.shown.filter(({ by }) => by === 'policy' || by === 'ema').map((item) => words(item))
    return html`<div>${picture(view, await this.#address(sample))}<div class="small">${caption}</div>${said}</div>`
  }
}

async function alarmCard(alarm: Alarm, pictures: Pictures): Promise<Markup> {
  const cards: Content[] = []
  for (const ref of alarm.samples) cards.push(await pictures.card(ref, false, `step ${ref.step}, record ${ref.id}`))
  return html`<div class="alarm card" role="note"><p><b class="problem">${alarm.kind}</b>, step ${alarm.step}: ${alarmText(alarm)}</p><div class="pairs">${cards}</div></div>`
}

/** A line over the steps, from its lowest to its highest value. */
function spark({ title, over, name }: BehaviourItem): Markup {
  const known = over.filter(Number.isFinite)
  const [low, high] = [Math.min(...known), Math.max(...known)]
  const y = (value: number) => 18 - (16 * (value - low)) / (high - low || 1)
  const d = over.map((value, i) => [i, value] as const).filter(([, value]) => Number.isFinite(value))
  const line = d.map(
    ([i, value]) => `${(4 + (92 * i) / Math.max(1, over.length - 1)).toFixed(1)} ${y(value).toFixed(1)}`,
  )
  const said = `${title} over the steps: ${known.map((value) => valueText(name, value)).join(', ')}`
  return html`<svg class="spark" viewBox="0 0 100 20" role="img" aria-label="${said}"><title>${said}</title><path d="M${line.join('L')}"/></svg>`
}

function row(item: BehaviourItem): Markup {
  const { name, title, before, after, records } = item
  const named =
    records.length > 0
      ? html`<details><summary>${counted(records.length, 'record')}</summary>${records.join(', ')}</details>`
      : undefined
  return html`<tr><th scope="row">${title}</th><td class="number">${valueText(name, before)}</td><td class="number">${valueText(name, after)}</td><td>${spark(item)}</td><td>${named}</td></tr>`
}

const stepText = ([from, to]: readonly [number, number]) => (from === to ? `step ${from}` : `steps ${from} to ${to}`)

function taskTable(task: TaskBehaviour): Markup {
  const shifts = (of: TaskBehaviour['gained']) =>
    of
      .map(({ word, before, after }) => `${word} (${Math.round(100 * before)} to ${Math.round(100 * after)} %)`)
      .join(', ')
  const both = [['gained', task.gained] as const, ['lost', task.lost] as const]
  const shown = both.map(([name, of]) => (of.length > 0 ? html`<p>Words ${name}: ${shifts(of)}</p>` : undefined))
  const about = `${task.answers[0]} answers of ${stepText(task.before)} against ${task.answers[1]} of ${stepText(task.after)}.`
  return html`<h3>${task.title}</h3><p>${about}</p><div class="behaviour card" role="group" aria-label="behaviour, ${task.title}" tabindex="0"><table><thead><tr><th scope="col">item</th><th scope="col">before</th><th scope="col">after</th><th scope="col">over the steps</th><th scope="col">where</th></tr></thead><tbody>${task.items.map(row)}</tbody></table></div>${shown}`
}

async function pairCard(pair: Pair, heldOut: boolean, pictures: Pictures): Promise<Markup> {
  const [a, b] = pair.samples
  const before = await pictures.card(a, heldOut, `before: ${pair.before.toFixed(3)}`)
  const after = await pictures.card(b, heldOut, `after: ${pair.after.toFixed(3)}`)
  const change = pair.after - pair.before
  return html`<article class="rollout"><div class="small">${pair.id}: <span class="${change > 0 ? 'up' : 'down'}">${change > 0 ? '+' : '−'}${Math.abs(change).toFixed(3)}</span></div><div class="pairs">${before}${after}</div></article>`
}

async function pairsSection({ pairs }: Behaviour, pictures: Pictures): Promise<Content> {
  if (!pairs) return undefined
  const blocks: Content[] = []
  for (const [title, list] of [['Gained most', pairs.best] as const, ['Lost most', pairs.worst] as const]) {
    const cards: Markup[] = []
    for (const pair of list) cards.push(await pairCard(pair, pairs.heldOut, pictures))
    if (cards.length > 0) blocks.push(html`<h4>${title}</h4><div class="rollouts">${cards}</div>`)
  }
  return html`<h3>Records</h3><p>${pairs.wins} better, ${pairs.losses} worse, ${pairs.ties} equal: ${pairs.about}.</p>${blocks}`
}

/** Alarms apart, so that a page can show them first. */
export async function behaviourSection(run: FollowedRun, address: ImageAddress) {
  const behaviour = behaviourOf(run)
  const pictures = new Pictures(run, address)
  const alarms: Markup[] = []
  for (const alarm of behaviour.alarms) alarms.push(await alarmCard(alarm, pictures))
  const tables = behaviour.tasks.map(taskTable)
  const none = tables.length === 0 ? html`<p>No samples of two steps yet.</p>` : undefined
  const calm = alarms.length === 0 && tables.length > 0 ? html`<p>No alarm.</p>` : undefined
  const pairs = await pairsSection(behaviour, pictures)
  return { alarms, body: html`${calm}${none}${tables}${pairs}` }
}

/** Between two computations for a run that is being written. */
const behaviourMs = 5000

/** The behaviour of runs as escaped markup, computed when it is asked for and something changed. */
export class BehaviourViews {
  readonly #known = new WeakMap<FollowedRun, { state: string; at: number; text: Promise<string> }>()

  view(id: string, run: FollowedRun): Promise<string> {
    const state = `${run.version} ${run.samplesVersion}`
    const known = this.#known.get(run)
    if (known && (known.state === state || performance.now() - known.at < behaviourMs)) return known.text
    const images = `/api/runs/${encodeURIComponent(id)}/images/`
    const address = async ({ image }: ReadSample) => image && `${images}${encodeURIComponent(image)}`
    const text = behaviourSection(run, address).then(({ alarms, body }) => html`${alarms}${body}`.text)
    this.#known.set(run, { state, at: performance.now(), text })
    return text
  }
}
