// A picture of one answer: the mask before it on the left, after it on the right, with the points.
import { overlay, type RgbImage } from '../../image/index.ts'
import type { Mask } from '../../mask/index.ts'
import { type Point, pixelAt } from './frame.ts'
import type { PointItem } from './item.ts'
import type { PointReply } from './reply.ts'

type Rgb = readonly [number, number, number]

const colours = { mask: [64, 128, 255], confused: [255, 160, 0], positive: [0, 200, 0], negative: [230, 0, 0] } as const

/** Green discs: positive points; red discs: negative ones. `confused`: what the first mask has too much, where that is known. */
export function pointPicture(item: PointItem, reply: PointReply, confused: Mask | null = null): RgbImage {
  const { image } = item.record
  const [before, after] = [reply.mask0, reply.mask1 ?? reply.mask0].map((mask) =>
    mask ? overlay(image, mask, colours.mask) : image,
  ) as [RgbImage, RgbImage]
  const left = confused ? overlay(before, confused, colours.confused) : before
  const inOriginal = (points: readonly Point[]) => points.map((p) => pixelAt(p, item.frame, image))
  const positives = [...item.positive.points.slice(0, 1), ...inOriginal(reply.answer.positives)]
  const negatives = inOriginal(reply.answer.negatives)
  const dotted = (panel: RgbImage) =>
    withDots(withDots(panel, positives, colours.positive), negatives, colours.negative)
  return sideBySide(dotted(left), dotted(after))
}

/** Discs with a white rim, a sixtieth of the longer side in radius. */
function withDots(image: RgbImage, points: readonly Point[], colour: Rgb): RgbImage {
  const data = image.data.slice()
  const radius = Math.max(2, Math.round(Math.max(image.width, image.height) / 60))
  for (const [x, y] of points)
    for (let v = Math.max(0, y - radius); v <= Math.min(image.height - 1, y + radius); v++)
      for (let u = Math.max(0, x - radius); u <= Math.min(image.width - 1, x + radius); u++) {
        const d2 = (u - x) ** 2 + (v - y) ** 2
        if (d2 <= radius * radius)
          data.set(d2 > (radius - 1) ** 2 ? [255, 255, 255] : colour, 3 * (v * image.width + u))
      }
  return { ...image, data }
}

function sideBySide(left: RgbImage, right: RgbImage): RgbImage {
  const gap = 4
  const width = left.width + gap + right.width
  const data = new Uint8Array(3 * width * left.height).fill(255)
  for (let y = 0; y < left.height; y++) {
    const row = (image: RgbImage) => image.data.subarray(3 * y * image.width, 3 * (y + 1) * image.width)
    data.set(row(left), 3 * y * width)
    data.set(row(right), 3 * (y * width + left.width + gap))
  }
  return { width, height: left.height, data }
}
