import { basename, join } from 'node:path'
import { fileBelow, messageOf } from '../core/index.ts'
import { type FollowedRun, maxImageBytes, runFiles, type Shown, selectSamples } from '../tracking/index.ts'
import { card } from './markup/card.ts'
import { html, type Markup } from './markup/html.ts'
import { imageAddress } from './picture.ts'
import { MaskPaths, sampleView } from './views.ts'

const shownOfEach = 4

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

/** Best and worst rollouts of each task with their masks, at most one of each record. */
export async function rollouts(run: FollowedRun, problems: Set<string>): Promise<Markup> {
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
        for (const item of view.shown) if (item.kind === 'mask' && item.size === null && item.missing?.startsWith('a mask')) problems.add(item.missing) // biome-ignore format: one line
        cards.push(card(view, { image: await imageUri(run, sample.image, problems) }))
      }
      blocks.push(html`<h3>${title}</h3><div class="rollouts">${cards}</div>`)
    }
  }
  const counts = `${samples.count} sampled completions, ${samples.count - samples.numScored} not scored, ${samples.numTruncated} cut at the longest length. At most one of each record is shown.`
  return html`<section><h2>Rollouts</h2><p>${counts}</p>${shown.length > 0 ? legendOf(shown) : undefined}${blocks}</section>`
}
