import { basename, join } from 'node:path'
import { fileBelow } from '../../core/index.ts'
import type { Sample, Shown } from '../events.ts'
import { maskPath } from '../outline.ts'
import { shownOf } from '../parse.ts'
import { short } from '../progress.ts'
import { maxImageBytes } from '../run-files.ts'
import type { Picture } from './tracker.ts'

const colours: Record<Shown['by'], string> = { record: '#00b884', policy: '#ff4fa3', ema: '#ffb000', judge: '#4f97ec' }
const leastSide = 256
const maxSide = 768

function sizeOf(shown: readonly Shown[]): readonly [number, number] | undefined {
  for (const item of shown) {
    if (item.kind === 'mask' && item.mask) return item.mask.size
    if (item.kind === 'points') return item.size
  }
  return undefined
}

/** Masks and points as a drawing of the given size; the paths are numbers alone, so no text of a run gets into it. */
function drawing(
  shown: readonly Shown[],
  [rows, columns]: readonly [number, number],
  width: number,
  height: number,
): string {
  const parts = shown.map((item) => {
    const colour = colours[item.by]
    if (item.kind === 'mask' && item.mask) {
      const d = maskPath(item.mask, width, height)
      return `<path d="${d}" fill="${colour}" fill-opacity="0.15" fill-rule="evenodd" stroke="${colour}" stroke-width="2"/>`
    }
    if (item.kind !== 'points') return ''
    const dots = item.points.map(({ x, y, positive }) => {
      const at = `cx="${Number((x * width) / columns)}" cy="${Number((y * height) / rows)}"`
      return `<circle ${at} r="5" fill="${positive ? colour : '#000'}" stroke="#fff"/>`
    })
    return dots.join('')
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${parts.join('')}</svg>`
}

function captionOf(sample: Sample, shown: readonly Shown[]): string {
  const texts = shown.flatMap((item) => (item.kind === 'text' ? [`${item.name ?? item.by}: ${item.text}`] : []))
  const parts = Object.entries(sample.rewards).map(([name, v]) => `${name} ${v === null ? 'not scored' : short(v)}`)
  const total = sample.total === null ? 'not scored' : short(sample.total)
  const scores = [`reward ${total}`, ...parts, `advantage ${short(sample.advantage)}`]
  return [`step ${sample.step}, ${sample.loop}, record ${sample.id}`, ...texts, scores.join(', ')].join('\n')
}

/** The record's image with everything drawn on it; undefined for samples without an image or a size. */
export async function pictureOf(dir: string, imagesFolder: string, sample: Sample): Promise<Picture | undefined> {
  const shown = shownOf(sample)
  const size = sizeOf(shown)
  const path = sample.image && fileBelow(join(dir, imagesFolder), basename(sample.image), maxImageBytes)
  if (!size || !path || size[0] < 1 || size[1] < 1) return undefined
  const { default: sharp } = await import('sharp')
  const side = Math.max(...size)
  const scale = Math.max(leastSide, Math.min(maxSide, side)) / side
  const [height, width] = [Math.max(1, Math.round(size[0] * scale)), Math.max(1, Math.round(size[1] * scale))]
  const png = await sharp(path)
    .resize(width, height, { fit: 'fill', kernel: scale > 1 ? 'nearest' : 'lanczos3' })
    .composite([{ input: Buffer.from(drawing(shown, size, width, height)) }])
    .png()
    .toBuffer()
  return { sample, png, width, height, caption: captionOf(sample, shown) }
}
