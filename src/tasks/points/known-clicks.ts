// Clicks that know the object: in the middle of the largest error, as SAM2's own evaluation simulates a user, and the best click that a
// search over the image finds. What a policy's points are measured against.
import { maskIou } from '../../mask/index.ts'
import type { ClickPrompt } from '../../sam/index.ts'
import { oracleClick } from './click-geometry.ts'
import { type FrameSize, type Point, rescale } from './frame.ts'
import { drawOptions, type PointItem, type PointSetup, withClicks } from './item.ts'

/** Pixels of the original image in SAM2's frame. */
export function toSam({ sam }: PointSetup, { record }: PointItem, points: readonly Point[]): Point[] {
  return points.map((p) => rescale(p, record.image, sam.inputSize(record.image)))
}

/** The middle of the largest error, maxPoints times from a positive prompt. Overlap after each click; the last one repeats. */
export function errorCentreCurve(
  setup: PointSetup,
  item: PointItem,
  start: ClickPrompt | null,
  logits: boolean,
): number[] {
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

/** Places of the first round on either axis, and rounds that halve the step around the best place so far. */
const [gridSide, rounds] = [7, 3]
/** Clicks drawn in one pass: what the mask decoder holds grows with them. */
const drawnTogether = 25

/** Best overlap of one click more: a grid over the image, then ever finer steps around its best place. No click is a choice too. */
export function searchBestClick(setup: PointSetup, item: PointItem, start: ClickPrompt | null): number {
  if (!start) return 0
  const { width, height } = item.record.image
  let step: Point = [width / gridSide, height / gridSide]
  const middle = (i: number) => (i + 0.5) / gridSide
  const places = Array.from({ length: gridSide ** 2 }, (_, i): Point => {
    return [middle(i % gridSide) * width, middle(Math.floor(i / gridSide)) * height]
  })
  let best = bestOf(setup, item, start, places)
  for (let round = 0; round < rounds; round++) {
    step = [step[0] / 2, step[1] / 2]
    const finer = bestOf(setup, item, start, around(best.point, step, { width, height }))
    if (finer.overlap > best.overlap) best = finer
  }
  const [alone] = setup.sam.draw(item.sam, [start], { ...drawOptions(setup, item.record), keepLogits: false })
  return Math.max(best.overlap, maskIou(item.record.mask, alone!.mask))
}

function around([x, y]: Point, [dx, dy]: Point, { width, height }: FrameSize): Point[] {
  const offsets = [-1, 0, 1]
    .flatMap((u) => [-1, 0, 1].map((v) => [u, v] as const))
    .filter(([u, v]) => u !== 0 || v !== 0)
  return offsets
    .map(([u, v]): Point => [x + u * dx, y + v * dy])
    .filter(([u, v]) => u >= 0 && v >= 0 && u < width && v < height)
}

/** Negative clicks, and positive ones where the policy may place them. */
function bestOf(setup: PointSetup, item: PointItem, start: ClickPrompt, places: readonly Point[]) {
  const { config, sam } = setup
  const options = drawOptions(setup, item.record)
  const first = options.keepLogits ? sam.draw(item.sam, [start], options)[0]! : null
  const labels = config.mode === 'second-look' ? ([0, 1] as const) : ([0] as const)
  const tried = places.flatMap((point) => labels.map((label) => ({ point, label })))
  let best: { point: Point; overlap: number } = { point: places[0]!, overlap: -1 }
  for (let from = 0; from < tried.length; from += drawnTogether) {
    const some = tried.slice(from, from + drawnTogether)
    const prompts = some.map(({ point, label }) => {
      const prompt = withClicks(start, toSam(setup, item, [point]), label)
      return first ? { ...prompt, previous: first.logits } : prompt
    })
    sam.draw(item.sam, prompts, { ...options, keepLogits: false }).forEach(({ mask }, i) => {
      const overlap = maskIou(item.record.mask, mask)
      if (overlap > best.overlap) best = { point: some[i]!.point, overlap }
    })
  }
  first?.logits?.dispose()
  return best
}
