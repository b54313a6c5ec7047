// One sample: its picture with what was drawn on it, what was said, and its scores.

import { type Content, html, type Markup } from './html.ts'
import { numberOf, short } from './metrics.ts'
import type { SampleView, ShownView } from './view-types.ts'

const authors: Record<string, string> = { record: 'record', policy: 'policy', ema: 'EMA copy', judge: 'judge' }
const titleOf = (item: ShownView) => item.name ?? authors[item.by] ?? item.by
const classOf = ({ by, name }: ShownView) => (name?.startsWith('confused') ? 'confused' : by)

type Size = readonly [height: number, width: number]

function sizeOf(shown: readonly ShownView[]): Size | undefined {
  for (const item of shown) if (item.kind !== 'text' && item.size) return item.size
  return undefined
}

/** Masks and points over an image of `size`. */
function overlay(item: ShownView, size: Size): Content {
  const name = classOf(item)
  if (item.kind === 'mask' && item.path !== '' && item.size) {
    const scale = `scale(${size[1] / item.size[1]} ${size[0] / item.size[0]})`
    return html`<g transform="${scale}"><path class="halo ${name}" d="${item.path}"/><path class="${name}" d="${item.path}"/></g>`
  }
  if (item.kind !== 'points') return undefined
  const radius = Math.max(...size) / 40
  return item.points.map(
    ({ x, y, positive }) =>
      html`<circle class="point ${name}${positive ? '' : ' negative'}" cx="${x}" cy="${y}" r="${radius}"/>`,
  )
}

/** An image with what lies over it. */
function framed(size: Size, image: string | undefined, over: Content, label: string): Markup {
  const [height, width] = size
  const tiny = Math.max(height, width) <= 128 ? 'tiny' : ''
  const drawn =
    image &&
    html`<image class="${tiny}" href="${image}" width="${width}" height="${height}" preserveAspectRatio="none"/>`
  return html`<div class="picture"><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">${drawn}${over}</svg></div>`
}

/** If points change a mask, the judge's mask before them and the one they make are two pictures. */
function panels(shown: readonly ShownView[]): { title: string; items: readonly ShownView[] }[] {
  const corrected = shown.some(({ kind }) => kind === 'points') && shown.some(({ kind, by }) => kind === 'mask' && by === 'judge') // biome-ignore format: one line
  if (!corrected) return [{ title: '', items: shown }]
  const without = (by: string) => shown.filter((item) => item.kind !== 'mask' || item.by !== by)
  return [
    { title: 'before the points', items: without('policy') },
    { title: 'after them', items: without('judge') },
  ]
}

/** `hidden`: authors whose masks and points are left out. */
export function picture(
  { id, step, shown }: SampleView,
  image?: string,
  hidden: ReadonlySet<string> = new Set(),
  label = `record ${id} at step ${step}`,
): Content {
  const size = sizeOf(shown)
  if (!size && image) return html`<div class="picture"><img src="${image}" alt="${label}" loading="lazy"/></div>`
  if (!size || size[0] < 1 || size[1] < 1) return undefined
  const made = panels(shown).map(({ title, items }) => {
    const over = items.filter(({ by }) => !hidden.has(by)).map((item) => overlay(item, size))
    const parts = items.filter(({ kind }) => kind !== 'text').map((item) => `${item.kind} of the ${titleOf(item)}`)
    const svg = framed(size, hidden.has('image') ? undefined : image, over, `${label} ${title}: ${parts.join(', ')}`)
    return title ? html`<div>${svg}<div class="small">${title}</div></div>` : svg
  })
  return made.length > 1 ? html`<div class="pictures">${made}</div>` : made
}

/** Words of `text`; those that were not in `before` are marked. */
function marked(text: string, before: string | undefined): Content {
  if (text === '') return '(empty)'
  if (before === undefined) return text
  const known = new Set(before.toLowerCase().split(/\s+/))
  const isNew = (word: string) => word.trim() !== '' && !known.has(word.toLowerCase())
  return text.split(/(\s+)/).map((word) => (isNew(word) ? html`<mark>${word}</mark>` : word))
}

/** What was said, or why nothing of a mask is seen. */
export function words(item: ShownView, before?: string): Markup | undefined {
  if (item.kind === 'mask')
    return item.missing ? html`<div class="small problem">${titleOf(item)}: ${item.missing}</div>` : undefined
  if (item.kind !== 'text') return undefined
  return html`<div class="small">${titleOf(item)}</div><blockquote>${marked(item.text, before)}</blockquote>`
}

function scores(sample: SampleView): Markup {
  const score = (value: unknown) => (value === null ? 'not scored' : short(numberOf(value)))
  const rows = [
    ['reward', score(sample.total)],
    ...Object.entries(sample.rewards).map(([name, value]) => [name, score(value)]),
    ['advantage', score(sample.advantage)],
  ]
  if (sample.length !== 0)
    rows.push(
      ['log-prob', score(sample.logp)],
      ['tokens', `${score(sample.length)}${sample.truncated ? ' (cut)' : ''}`],
    )
  return html`<table><tbody>${rows.map(([key, value]) => html`<tr><th scope="row">${key}</th><td class="number">${value}</td></tr>`)}</tbody></table>`
}

const textOf = (sample: SampleView | undefined) => {
  const item = sample?.shown.find(({ kind, by }) => kind === 'text' && by === 'policy')
  return item?.kind === 'text' ? item.text : undefined
}

export interface CardOptions {
  /** Address of its image. */
  image?: string
  /** Of its task, if not all of them are of one. */
  title?: string
  hidden?: ReadonlySet<string>
  /** A sample of the record before this one: words that are new are marked. */
  before?: SampleView
  /** The record's id is a button with `data-record`. */
  follows?: boolean
}

export function card(sample: SampleView, options: CardOptions = {}): Markup {
  const { id, step, k, shown } = sample
  const title = options.title ? `, ${options.title}` : ''
  const record = options.follows ? html`<button type="button" class="link" data-record="${id}">${id}</button>` : id
  const said = shown.map((item) => words(item, item.by === 'policy' ? textOf(options.before) : undefined))
  return html`<article class="rollout">${picture(sample, options.image, options.hidden)}<div class="small">step ${step}${title}, sample ${k}</div><div class="small">record ${record}</div>${said}${scores(sample)}</article>`
}
