// What a person sees of an answer: the question, the object, the points, SAM2's mask before and after them, and where the first one
// takes in too much. The parts of the reward are next to it, for readers of samples.jsonl.
import { counted } from '../../core/index.ts'
import { encodeRle, type Mask, maskDifference } from '../../mask/index.ts'
import type { Json, Shown } from '../../rl/index.ts'
import type { PointMode, PointRewardConfig } from './answer-config.ts'
import { type Point, rescale } from './frame.ts'
import type { PointReply } from './reply.ts'
import { type PointParts, type PointSample, scorePoints } from './reward.ts'

export interface Asked {
  query: string
  target: Mask
  /** What the policy wrote. */
  text: string
  /** Points that SAM2 is given of the object, pixels of the image. */
  positive: readonly Point[]
}

export interface Answered {
  points: PointSample
  reply: PointReply
}

/** The question, the object and the words of the answer. */
export function shownQuestion({ query, target, text }: Pick<Asked, 'query' | 'target' | 'text'>): Shown[] {
  return [
    { kind: 'mask', by: 'record', value: encodeRle(target) },
    { kind: 'text', by: 'record', value: query },
    { kind: 'text', by: 'policy', value: text },
  ]
}

export function shownAnswer(asked: Asked, answered: Answered | undefined, weights: PointRewardConfig): Shown[] {
  const { target, positive } = asked
  const out = shownQuestion(asked)
  if (!answered) return out
  const { mask0, mask1, answer, switched, confidence } = answered.reply
  const last = mask1 ?? mask0
  if (last) out.push({ kind: 'mask', by: 'policy', value: encodeRle(last), name: 'mask after the points' })
  if (mask0) {
    const confused = maskDifference(mask0, target)
    out.push({ kind: 'mask', by: 'judge', value: encodeRle(mask0), name: 'mask before the points' })
    out.push({ kind: 'mask', by: 'judge', value: encodeRle(confused), name: 'confused region' })
  }
  const size = [target.height, target.width]
  const { frame, mode } = answered.points
  const inImage = (points: readonly Point[]) => points.map((p) => rescale(p, frame, target))
  const points = [...dots(inImage(answer.positives), true), ...dots(inImage(answer.negatives), false)]
  const parts = scorePoints(answered.points, weights)
  const { valid, format } = answer
  out.push({ kind: 'points', by: 'record', value: { size, points: dots(positive, true) } })
  out.push({
    kind: 'points',
    by: 'policy',
    value: { size, points, valid, format, switched, confidence, parts: plain(parts) },
  })
  out.push({ kind: 'text', by: 'judge', value: describeParts(parts, mode), name: 'SAM2' })
  return out
}

const plain = ({ ranked: _, ...parts }: PointParts): Json => parts

function dots(points: readonly Point[], positive: boolean): Json[] {
  return points.map(([x, y]) => ({ x, y, positive }))
}

function describeParts({ valid, iou0, iou1, kept, right, wrong }: PointParts, mode: PointMode): string {
  if (!valid) return 'the answer could not be read'
  const change = iou1 - iou0
  const bad = mode === 'second-look' ? 'negative on the object or positive outside it' : 'on the object'
  const overlap = `IoU ${iou0.toFixed(3)} to ${iou1.toFixed(3)} (${change < 0 ? '' : '+'}${change.toFixed(3)})`
  return `${overlap}; ${counted(kept, 'point')} kept, ${right} on an error of the mask, ${wrong} ${bad}`
}
