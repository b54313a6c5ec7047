// Records as a page: their images with the outlines of their masks, for people who look at data before training.
import { BadRecord, type Example, type Source } from '../data/index.ts'
import { encodePng, outline, type RgbImage, resize } from '../image/index.ts'
import { maskArea } from '../mask/index.ts'
import { html, type Markup } from './markup/html.ts'
import { page } from './page.ts'

const side = 320 // px of the longer side on the page

function shrink(image: RgbImage): RgbImage {
  const scale = side / Math.max(image.width, image.height)
  const size = (length: number) => Math.max(1, Math.round(length * scale))
  return scale >= 1 ? image : resize(image, size(image.width), size(image.height), 'bilinear')
}

async function card({ id, image, mask, caption, category = [] }: Example): Promise<Markup> {
  const png = Buffer.from(await encodePng(outline(shrink(image), mask))).toString('base64')
  const share = (100 * maskArea(mask)) / (mask.width * mask.height)
  const facts = [category.join(', '), id, `${image.width} x ${image.height}, ${share.toFixed(2)} % inside`]
  const lines = facts.filter((fact) => fact !== '').map((fact) => html`<div class="small">${fact}</div>`)
  return html`<article class="rollout"><div class="picture"><img alt="" src="data:image/png;base64,${png}"></div><blockquote>${caption}</blockquote>${lines}</article>`
}

function badCard(id: string, { reason, message }: BadRecord): Markup {
  return html`<article class="rollout"><p class="problem">${reason}: ${message}</p><div class="small">${id}</div></article>`
}

/** A page that needs nothing else: the given records with the outlines of their masks; unusable ones say why. */
export async function previewPage(source: Source, indices: readonly number[]): Promise<string> {
  const cards: Markup[] = []
  for (const index of indices) {
    try {
      cards.push(await card(await source.get(index)))
    } catch (error) {
      if (!(error instanceof BadRecord)) throw error
      cards.push(badCard(source.id(index), error))
    }
  }
  const title = `${source.name}: ${indices.length} of ${source.length} records`
  return page(
    title,
    html`<header><h1>${title}</h1><p>${source.format}</p></header><div class="rollouts">${cards}</div>`,
  )
}
