import { basename, join } from 'node:path'
import { fileBelow, messageOf } from '../core/index.ts'
import { maxImageBytes, type ReadSample, type Run, runFiles, runTasks, type Shown } from '../tracking/index.ts'
import { card } from './markup/card.ts'
import { html, type Markup } from './markup/html.ts'
import { imageAddress } from './picture.ts'
import { MaskPaths, sampleView } from './views.ts'

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

/** Best and worst rollouts of each task with their masks; messages about what could not be shown. */
export async function rollouts(run: Run): Promise<{ markup: Markup; problems: string[] }> {
  const chosen = chooseSamples(run.samples())
  const problems = new Set<string>()
  const paths = new MaskPaths()
  const blocks: Markup[] = []
  const titles = new Map(runTasks(run).map(({ name, title }) => [name, title]))
  for (const { loop, best, worst } of chosen.loops) {
    blocks.push(html`<h2>${titles.get(loop) ?? loop}</h2>`)
    for (const [title, samples] of [['Highest rewards', best] as const, ['Lowest rewards', worst] as const]) {
      const cards: Markup[] = []
      for (const sample of samples) {
        const view = sampleView(sample, paths)
        for (const item of view.shown) if (item.kind === 'mask' && item.size === null && item.missing?.startsWith('a mask')) problems.add(item.missing) // biome-ignore format: one line
        cards.push(card(view, { image: await imageUri(run, sample.image, problems) }))
      }
      blocks.push(html`<h3>${title}</h3><div class="rollouts">${cards}</div>`)
    }
  }
  const counts = `${chosen.count} sampled completions, ${chosen.unscored} not scored, ${chosen.truncated} cut at the longest length. At most one of each record is shown.`
  const all = chosen.loops.flatMap(({ best, worst }) => [...best, ...worst])
  const legend = legendOf(all.flatMap(({ shown }) => shown))
  return {
    markup: html`<section><h2>Rollouts</h2><p>${counts}</p>${chosen.loops.length > 0 ? legend : undefined}${blocks}</section>`,
    problems: [...problems],
  }
}
