// Interactive segmentation: a simulated user clicks into the middle of the largest error, the model draws again.
import { type Mask, maskIou, toDense } from '../mask/index.ts'
import { squaredDistance } from './distance.ts'
import { type MeasureOptions, measure, share } from './measure.ts'

export interface Click {
  /** Pixel of the image. */
  x: number
  y: number
  /** Inside the object, or to be left out. */
  inside: boolean
}

/** Pixel of the greatest distance to the border of a region, the first in reading order of equal ones; null when it is empty. */
function middleOf(region: Uint8Array, height: number, width: number): { at: number; distance: number } | null {
  const distances = squaredDistance(region, height, width)
  let [at, distance] = [-1, 0]
  for (let q = 0; q < distances.length; q++) {
    if (distances[q]! > distance) [at, distance] = [q, distances[q]!]
  }
  return at < 0 ? null : { at, distance }
}

/**
 * The next click: the pixel deepest inside what is missing or what is too much, whichever is deeper; of equal ones the second, as
 * SAM2's simulation has it. Null when the mask is right.
 */
export function nextClick(target: Mask, drawn: Mask | null): Click | null {
  const { height, width } = target
  const wanted = toDense(target)
  const have = drawn ? toDense(drawn) : new Uint8Array(wanted.length)
  const missing = middleOf(
    wanted.map((v, q) => v & (1 - have[q]!)),
    height,
    width,
  )
  const extra = middleOf(
    have.map((v, q) => v & (1 - wanted[q]!)),
    height,
    width,
  )
  const inside = missing !== null && (extra === null || missing.distance > extra.distance)
  const found = inside ? missing : extra
  return found && { x: found.at % width, y: Math.floor(found.at / width), inside }
}

/** Draws with all clicks so far; keeps its own low-resolution logits from one call to the next. */
export type DrawClicks = (clicks: readonly Click[]) => Mask

/** Overlap after each of at most `most` clicks; a mask that is right needs no more, and keeps its overlap. */
export function simulateClicks(target: Mask, draw: DrawClicks, most: number): number[] {
  const clicks: Click[] = []
  const overlaps: number[] = []
  let drawn: Mask | null = null
  while (overlaps.length < most) {
    const click = nextClick(target, drawn)
    if (click) {
      clicks.push(click)
      drawn = draw(clicks)
    }
    overlaps.push(drawn ? maskIou(target, drawn) : 0)
  }
  return overlaps
}

export const mostClicks = 20

export interface ClickedRecord {
  id: string
  image: string
  overlaps: readonly number[]
}

/** mIoU after 1, 3 and 5 clicks; clicks needed for an overlap of 85 and 90 %, `mostClicks` where it is never reached. */
export function scoreClicks(records: readonly ClickedRecord[], options: MeasureOptions) {
  const needed = (overlaps: readonly number[], goal: number) => {
    const at = overlaps.findIndex((overlap) => overlap >= goal)
    return at < 0 ? mostClicks : at + 1
  }
  const measured = records.map(({ image, overlaps }) => ({
    image,
    values: [overlaps[0]!, overlaps[2]!, overlaps[4]!, needed(overlaps, 0.85), needed(overlaps, 0.9), 1],
  }))
  const figures = {
    ...{ 'mIoU@1': share(0, 5), 'mIoU@3': share(1, 5), 'mIoU@5': share(2, 5) },
    ...{ 'NoC@85': share(3, 5), 'NoC@90': share(4, 5) },
  }
  return measure(measured, figures, options)
}
