// Interactive segmentation: a simulated user clicks into the middle of the largest error, the model draws again.
import { type Click, errorCentre, type Mask, maskIou } from '../mask/index.ts'
import { type MeasureOptions, measure, share } from './measure.ts'

/** Draws with all clicks so far; keeps its own low-resolution logits from one call to the next. */
export type DrawClicks = (clicks: readonly Click[]) => Mask

/** Overlap after each of at most `most` clicks; a mask that is right needs no more, and keeps its overlap. */
export function simulateClicks(target: Mask, draw: DrawClicks, most: number): number[] {
  const clicks: Click[] = []
  const overlaps: number[] = []
  let drawn: Mask | null = null
  while (overlaps.length < most) {
    const click = errorCentre(target, drawn)
    if (click) {
      clicks.push(click)
      drawn = draw(clicks)
    }
    overlaps.push(drawn ? maskIou(target, drawn) : 0)
  }
  return overlaps
}

export const maxClicks = 20

export interface ClickedRecord {
  id: string
  image: string
  overlaps: readonly number[]
}

/** mIoU after 1, 3 and 5 clicks; clicks needed for an overlap of 85 and 90 %, `maxClicks` where it is never reached. */
export function scoreClicks(records: readonly ClickedRecord[], options: MeasureOptions) {
  const needed = (overlaps: readonly number[], goal: number) => {
    const at = overlaps.findIndex((overlap) => overlap >= goal)
    return at < 0 ? maxClicks : at + 1
  }
  const measured = records.map(({ image, overlaps }) => ({
    image,
    values: [overlaps[0]!, overlaps[2]!, overlaps[4]!, needed(overlaps, 0.85), needed(overlaps, 0.9), 1],
  }))
  const metrics = {
    ...{ 'mIoU@1': share(0, 5), 'mIoU@3': share(1, 5), 'mIoU@5': share(2, 5) },
    ...{ 'NoC@85': share(3, 5), 'NoC@90': share(4, 5) },
  }
  return measure(measured, metrics, options)
}
