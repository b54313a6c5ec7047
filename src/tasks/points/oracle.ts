// SAM2's own way to correct a mask: clicks in the middle of its largest error. What a policy's points are measured against.
import { maskIou } from '../../mask/index.ts'
import type { ClickPrompt } from '../../sam/index.ts'
import { type Point, rescale } from './frame.ts'
import { drawOptions, type PointItem, type PointSetup, withClicks } from './item.ts'
import { oracleClick } from './places.ts'

/** Pixels of the original image in SAM2's frame. */
export function toSam({ sam }: PointSetup, { record }: PointItem, points: readonly Point[]): Point[] {
  return points.map((p) => rescale(p, record.image, { width: sam.side, height: sam.side }))
}

/** The middle of the largest error, maxPoints times from a positive prompt. Overlap after each click; the last one repeats. */
export function oracleCurve(setup: PointSetup, item: PointItem, start: ClickPrompt | null, logits: boolean): number[] {
  const { config, sam } = setup
  if (!start) return Array<number>(config.maxPoints).fill(0)
  const { record } = item
  const options = { ...drawOptions(setup, record), keepLogits: logits }
  let prompt = start
  let last = sam.draw(item.sam, [prompt], options)[0]!
  const out: number[] = []
  for (let n = 0; n < config.maxPoints; n++) {
    const click = oracleClick(record.mask, last.mask, config.mode)
    if (click) {
      prompt = withClicks(prompt, toSam(setup, item, [click.point]), click.label)
      const [next] = sam.draw(item.sam, [{ ...prompt, previous: last.logits }], options)
      last.logits?.dispose()
      last = next!
    }
    out.push(maskIou(record.mask, last.mask))
  }
  last.logits?.dispose()
  return out
}
