import { encodePng, outline, type RgbImage, resize } from '../image/index.ts'
import { maskArea } from '../mask/index.ts'
import { BadRecord, type Example, type Source } from './example.ts'

const side = 320 // px of the longer side on the page

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]!)
}

function shrink(image: RgbImage): RgbImage {
  const scale = side / Math.max(image.width, image.height)
  const size = (length: number) => Math.max(1, Math.round(length * scale))
  return scale >= 1 ? image : resize(image, size(image.width), size(image.height), 'bilinear')
}

async function card(example: Example): Promise<string> {
  const png = Buffer.from(await encodePng(outline(shrink(example.image), example.mask))).toString('base64')
  const share = (100 * maskArea(example.mask)) / (example.mask.width * example.mask.height)
  const facts = `${example.image.width} x ${example.image.height}, ${share.toFixed(2)} % inside`
  const category = example.category ? `<p class="facts">${escapeHtml(example.category.join(', '))}</p>` : ''
  return `<figure><img alt="" src="data:image/png;base64,${png}"><figcaption><p>${escapeHtml(example.caption)}</p>${category}<p class="facts">${escapeHtml(example.id)}<br>${facts}</p></figcaption></figure>`
}

function badCard(id: string, bad: BadRecord): string {
  const facts = `<p class="facts">${escapeHtml(id)}</p>`
  return `<figure class="bad"><figcaption><p>${escapeHtml(`${bad.reason}: ${bad.message}`)}</p>${facts}</figcaption></figure>`
}

const style = `body{font:14px/1.4 system-ui,sans-serif;margin:24px;color:#1b1f24;background:#fff}
main{display:grid;grid-template-columns:repeat(auto-fill,minmax(${side}px,1fr));gap:16px}
figure{margin:0;border:1px solid #d0d7de;border-radius:6px;overflow:hidden}
img{display:block;max-width:100%;margin:0 auto}
figcaption{padding:8px 12px}p{margin:0 0 6px}.facts{color:#57606a;font-size:12px;overflow-wrap:anywhere}
.bad{border-color:#cf222e}@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}figure{border-color:#30363d}.facts{color:#8b949e}}`

/** Whatever a caption may hold: nothing is run, nothing is fetched. */
const policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

/** A page that needs nothing else: the given records with the outlines of their masks; unusable ones say why. */
export async function previewPage(source: Source, indices: readonly number[]): Promise<string> {
  const cards: string[] = []
  for (const index of indices) {
    try {
      cards.push(await card(await source.get(index)))
    } catch (error) {
      if (!(error instanceof BadRecord)) throw error
      cards.push(badCard(source.id(index), error))
    }
  }
  const title = `${source.name}: ${indices.length} of ${source.length} records`
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title><style>${style}</style>
<h1>${escapeHtml(title)}</h1><p>${escapeHtml(source.format)}</p>
<main>
${cards.join('\n')}
</main></html>
`
}
