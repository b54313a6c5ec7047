import { basename, join } from 'node:path'
import { fileBelow, messageOf } from '../core/index.ts'
import {
  type MaskRle,
  maskPath,
  maxImageBytes,
  type ReadSample,
  type Run,
  runFiles,
  runTasks,
  type Shown,
  short,
} from '../tracking/index.ts'
import { html, type Markup } from './html.ts'
import { imageAddress } from './picture.ts'

const shownOfEach = 4

/** The `count` samples that come first by `compare`, at most one of each record. */
class Best {
  readonly kept: ReadSample[] = []
  readonly #compare: (a: ReadSample, b: ReadSample) => number

  constructor(compare: (a: ReadSample, b: ReadSample) => number) {
    this.#compare = compare
  }

  add(sample: ReadSample): void {
    const same = this.kept.findIndex((s) => s.id === sample.id)
    if (same >= 0 && this.#compare(this.kept[same]!, sample) <= 0) return
    if (same >= 0) this.kept.splice(same, 1)
    this.kept.push(sample)
    this.kept.sort(this.#compare)
    if (this.kept.length > shownOfEach) this.kept.pop()
  }
}

export interface LoopSamples {
  loop: string
  best: readonly ReadSample[]
  worst: readonly ReadSample[]
}

export interface Chosen {
  loops: LoopSamples[]
  count: number
  unscored: number
  truncated: number
}

/** One pass over the samples. Equal rewards: the later step first, it shows the model as it became. */
export function chooseSamples(samples: Iterable<ReadSample>): Chosen {
  const later = (a: ReadSample, b: ReadSample) => b.step - a.step || a.k - b.k
  const loops = new Map<string, { best: Best; worst: Best }>()
  const out: Chosen = { loops: [], count: 0, unscored: 0, truncated: 0 }
  for (const sample of samples) {
    out.count++
    if (sample.truncated) out.truncated++
    if (sample.total === null || Number.isNaN(sample.total)) {
      out.unscored++
      continue
    }
    const known = loops.get(sample.loop) ?? {
      best: new Best((a, b) => b.total! - a.total! || later(a, b)),
      worst: new Best((a, b) => a.total! - b.total! || later(a, b)),
    }
    loops.set(sample.loop, known)
    known.best.add(sample)
    known.worst.add(sample)
  }
  const sorted = [...loops].sort(([a], [b]) => (a < b ? -1 : 1))
  out.loops = sorted.map(([loop, { best, worst }]) => ({ loop, best: best.kept, worst: worst.kept }))
  return out
}

/** The image as a data address, or undefined where it was not kept. Only files directly under images/ are read. */
export async function imageUri(
  run: { dir: string },
  name: string | undefined,
  problems: Set<string>,
): Promise<string | undefined> {
  if (!name) return undefined
  const path = basename(name) === name ? fileBelow(join(run.dir, runFiles.images), name, maxImageBytes) : null
  if (path === null) {
    problems.add(`the image ${name} is not in the run folder`)
    return undefined
  }
  try {
    return await imageAddress(path)
  } catch (error) {
    problems.add(`the image ${name} could not be shown: ${messageOf(error)}`)
    return undefined
  }
}

export function outline(
  rle: MaskRle | null,
  kind: string,
  size: readonly [number, number],
  problems: Set<string>,
): Markup {
  if (!rle) return html``
  try {
    const d = maskPath(rle, size[1], size[0])
    return d === '' ? html`` : html`<path class="halo ${kind}" d="${d}"/><path class="${kind}" d="${d}"/>`
  } catch (error) {
    problems.add(`a mask could not be drawn: ${messageOf(error)}`)
    return html``
  }
}

function sizeOf(shown: readonly Shown[]): readonly [number, number] | undefined {
  for (const item of shown) {
    if (item.kind === 'mask' && item.mask) return item.mask.size
    if (item.kind === 'points') return item.size
  }
  return undefined
}

function styleOf(item: Shown): string {
  if (item.by === 'record') return 'given record'
  if (item.by === 'policy' || item.by === 'ema') return `made ${item.by}`
  return item.name?.startsWith('confused') ? 'confused judge' : 'judged judge'
}

/** Where points change a mask, the judge's mask before them and the one they make are two pictures; else all is in one. */
function panels(shown: readonly Shown[]): { title: string; items: readonly Shown[] }[] {
  const masks = shown.filter((item) => item.kind === 'mask')
  const corrected = shown.some((item) => item.kind === 'points') && masks.some((item) => item.by === 'judge')
  if (!corrected) return [{ title: '', items: shown }]
  const without = (by: Shown['by']) => shown.filter((item) => item.kind !== 'mask' || item.by !== by)
  return [
    { title: 'before the points', items: without('policy') },
    { title: 'after them', items: without('judge') },
  ]
}

/** Masks and points over the image: those of the record in one style, those that were made in another. */
function overlay(item: Shown, size: readonly [number, number], problems: Set<string>): Markup {
  const style = styleOf(item)
  if (item.kind === 'mask') return outline(item.mask, style, size, problems)
  if (item.kind !== 'points') return html``
  const radius = Math.max(...size) / 30
  const dots = item.points.map(
    ({ x, y, positive }) =>
      html`<circle class="point ${style} ${positive ? '' : 'negative'}" cx="${x}" cy="${y}" r="${radius}"/>`,
  )
  return html`${dots}`
}

/** The image at `uri`, if there is one, with what was drawn on it. */
export function picture(sample: ReadSample, uri: string | undefined, problems: Set<string>): Markup {
  const size = sizeOf(sample.shown)
  if (!size || size[0] < 1 || size[1] < 1) return html``
  const [height, width] = size
  const tiny = Math.max(height, width) <= 128 ? 'tiny' : ''
  const image =
    uri && html`<image class="${tiny}" href="${uri}" width="${width}" height="${height}" preserveAspectRatio="none"/>`
  const made = panels(sample.shown).map(({ title, items }) => {
    const overlays = items.map((item) => overlay(item, size, problems))
    const label = `image with what the record holds and what was made ${title}`.trim()
    const svg = html`<div class="picture"><svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">${image}${overlays}</svg></div>`
    return title ? html`<div>${svg}<div class="small">${title}</div></div>` : svg
  })
  return made.length > 1 ? html`<div class="pictures">${made}</div>` : html`${made}`
}

const authors: Record<Shown['by'], string> = {
  record: 'record',
  policy: 'policy',
  ema: 'EMA copy',
  judge: 'judge',
}

/** Why nothing of a mask is seen; null: something is. */
function lackOf(mask: MaskRle | null): string | null {
  if (mask === null) return 'no mask was made'
  try {
    return maskPath(mask, 1, 1) === '' ? 'the mask is empty' : null
  } catch {
    return null // reported by the outline
  }
}

export function words(item: Shown): Markup | undefined {
  const title = item.name ?? authors[item.by]
  if (item.kind === 'mask') {
    const lack = lackOf(item.mask)
    return lack === null ? undefined : html`<div class="small problem">${title}: ${lack}</div>`
  }
  if (item.kind !== 'text') return undefined
  return html`<div class="small">${title}</div><blockquote>${item.text === '' ? '(empty)' : item.text}</blockquote>`
}

function scores(sample: ReadSample): Markup {
  const parts = Object.entries(sample.rewards).map(([name, v]) => [name, v === null ? 'not scored' : short(v)])
  const rows = [
    ['reward', short(sample.total ?? Number.NaN)],
    ...parts,
    ['advantage', short(sample.advantage)],
    ['log-prob, tokens', `${short(sample.logp)}, ${short(sample.length)}${sample.truncated ? ' (cut)' : ''}`],
  ]
  return html`<table>${rows.map(([key, value]) => html`<tr><td>${key}</td><td class="number">${value}</td></tr>`)}</table>`
}

async function card(run: Run, sample: ReadSample, problems: Set<string>): Promise<Markup> {
  return html`<article class="rollout">${picture(sample, await imageUri(run, sample.image, problems), problems)}<div class="small">step ${sample.step}, record ${sample.id}, sample ${sample.k}</div>${sample.shown.map(words)}${scores(sample)}</article>`
}

/** Best and worst rollouts of each task with their masks; what could not be shown is returned in words. */
export async function rollouts(run: Run): Promise<{ markup: Markup; problems: string[] }> {
  const chosen = chooseSamples(run.samples())
  const problems = new Set<string>()
  const blocks: Markup[] = []
  const titles = new Map(runTasks(run).map(({ name, title }) => [name, title]))
  for (const { loop, best, worst } of chosen.loops) {
    blocks.push(html`<h2>${titles.get(loop) ?? loop}</h2>`)
    for (const [title, samples] of [['Highest rewards', best] as const, ['Lowest rewards', worst] as const]) {
      const cards: Markup[] = []
      for (const sample of samples) cards.push(await card(run, sample, problems))
      blocks.push(html`<h3>${title}</h3><div class="rollouts">${cards}</div>`)
    }
  }
  const counts = `${chosen.count} sampled completions, ${chosen.unscored} not scored, ${chosen.truncated} cut at the longest length. At most one of each record is shown.`
  const all = chosen.loops.flatMap(({ best, worst }) => [...best, ...worst])
  const judgedMask = all.flatMap(({ shown }) => shown).find((item) => item.kind === 'mask' && item.by === 'judge')
  const hasPoints = all.some(({ shown }) => shown.some((item) => item.kind === 'points'))
  const judged = judgedMask
    ? html`<span><i class="key judged"></i>${judgedMask.name ?? 'of the judge'}</span>`
    : undefined
  const dots = hasPoints
    ? html`<span><i class="key confused"></i>confused region</span><span><i class="dot"></i>positive point</span><span><i class="dot negative"></i>negative point</span>`
    : undefined
  const legend = html`<div class="legend"><span><i class="key given"></i>of the record</span><span><i class="key made"></i>made by a model</span>${judged}${dots}</div>`
  return {
    markup: html`<section><h2>Rollouts</h2><p>${counts}</p>${chosen.loops.length > 0 ? legend : undefined}${blocks}</section>`,
    problems: [...problems],
  }
}
