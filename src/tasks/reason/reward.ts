// What an answer is worth, term by term, as the published code computes it. Pure over objects and masks.
import { type Mask, maskArea, maskIou } from '../../mask/index.ts'
import type { Box, FrameSize, Point } from '../points/frame.ts'
import { nonRepeat, type Placed, type ReasonAnswer } from './answer.ts'
import type { AnswerForm, ReasonRewardConfig, TermName } from './config.ts'
import { assign } from './match.ts'

export interface ReasonSample {
  text: string
  answer: ReasonAnswer
  form: AnswerForm
  /** Size of the model's image, the frame of the objects. */
  frame: FrameSize
  /** Of the record; empty: it has no target. */
  truth: readonly Placed[]
  target: Mask
  /** All objects of the answer together; null: nothing is drawn. */
  mask: Mask | null
}

export type ReasonParts = Record<TermName, number>

/** Objects of either side that count, as in the published code. */
const maxObjects = 120

/** Every term, unweighted. Those of places are means over the larger number of objects, after a one-to-one matching. */
export function scoreReason(sample: ReasonSample, reward: ReasonRewardConfig): ReasonParts {
  const { answer, text, truth, target, mask } = sample
  const [written, real] = [answer.objects?.slice(0, maxObjects) ?? null, truth.slice(0, maxObjects)]
  const none = written?.length === 0 && real.length === 0
  const places = none ? { boxIou: 1, boxL1: 1, point: 1 } : matchedPlaces(written ?? [], real, sample, reward)
  const larger = Math.max(written?.length ?? 0, real.length)
  const isEmpty = mask === null || maskArea(mask) === 0
  return {
    thinking: Number(answer.thinking),
    format: answer.format,
    mask: maskArea(target) === 0 ? Number(isEmpty && written !== null) : mask ? maskIou(target, mask) : 0,
    ...places,
    count: none ? 1 : written ? Math.min(written.length, real.length) / larger : 0,
    nonRepeat: nonRepeat(text),
  }
}

type Places = Pick<ReasonParts, 'boxIou' | 'boxL1' | 'point'>

function matchedPlaces(
  written: readonly Placed[],
  real: readonly Placed[],
  { form, frame }: ReasonSample,
  reward: ReasonRewardConfig,
): Places {
  const scale = Math.max(frame.width, frame.height) / 840
  const values = written.map((w) => real.map((r) => pairValues(w, r, form, scale)))
  const total = (v: Places) => reward.boxIou * v.boxIou + reward.boxL1 * v.boxL1 + reward.point * v.point
  const pairs = assign(values.map((row) => row.map(total))).map(([i, j]) => values[i]![j]!)
  const mean = (of: (v: Places) => number) =>
    pairs.reduce((sum, v) => sum + of(v), 0) / Math.max(written.length, real.length, 1)
  return { boxIou: mean((v) => v.boxIou), boxL1: mean((v) => v.boxL1), point: mean((v) => v.point) }
}

/** Published limits, in pixels of an image of 840: mean distance of the coordinates of boxes, and of points. */
const maxBoxL1 = 10
const maxPointDistance: Record<AnswerForm, number> = { objects: 30, single: 100, box: 0 }

function pairValues(w: Placed, r: Placed, form: AnswerForm, scale: number): Places {
  const overlap = boxIou(w.box, r.box, form)
  const l1 = w.box.reduce((sum, v, i) => sum + Math.abs(v - r.box[i]!), 0) / 4
  const inside = w.points.length > 0 && w.points.every((p) => isInBox(p, w.box))
  return {
    boxIou: form === 'box' ? Math.max(0, overlap) : Number(overlap > 0.5),
    boxL1: Number(l1 < maxBoxL1 * scale),
    point: Number(inside && pointDistance(w.points, r.points) < maxPointDistance[form] * scale),
  }
}

/**
 * Overlap of boxes as each project defines it: VisionReasoner and Seg-Zero count both ends of a box as inside; for Seg-Zero and VLM-R1
 * boxes that share one row or column of pixels do not overlap.
 */
export function boxIou(a: Box, b: Box, form: AnswerForm): number {
  const end = form === 'box' ? 0 : 1
  const [w, h] = [Math.min(a[2], b[2]) - Math.max(a[0], b[0]) + end, Math.min(a[3], b[3]) - Math.max(a[1], b[1]) + end]
  const least = form === 'objects' ? 0 : 1
  const shared = w > least && h > least ? w * h : 0
  const area = ([x1, y1, x2, y2]: Box) => (x2 - x1 + end) * (y2 - y1 + end)
  const union = area(a) + area(b) - shared
  return union === 0 ? 0 : shared / union
}

const isInBox = ([x, y]: Point, [x1, y1, x2, y2]: Box) => x1 <= x && x <= x2 && y1 <= y && y <= y2

/** Mean distance in the better order of the two points; a record with one point has it twice. */
function pointDistance(written: readonly Point[], real: readonly Point[]): number {
  const target = written.map((_, i) => real[Math.min(i, real.length - 1)]!)
  const mean = (order: readonly Point[]) =>
    written.reduce((sum, [x, y], i) => sum + Math.hypot(x - order[i]![0], y - order[i]![1]), 0) / written.length
  return Math.min(mean(target), mean([...target].reverse()))
}
