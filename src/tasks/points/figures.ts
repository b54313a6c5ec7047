// Figures of one step of the point task, under the names of the task's spec: how often answers can be read, where points land, and
// what the masks gain. `loss`, `mean_reward` and `max_reward` are the prototype's names.
import { maskArea } from '../../mask/index.ts'
import type { Scored } from '../../rl/index.ts'
import type { PointRewardConfig } from './answer-config.ts'
import { type PointParts, scorePoints } from './reward.ts'
import type { PointsReply } from './task.ts'

/** Replies of one record and what they earned. */
export interface AnsweredGroup {
  readonly replies: readonly PointsReply[]
  readonly scores: readonly Scored[]
}

export function stepFigures(
  groups: readonly AnsweredGroup[],
  weights: PointRewardConfig,
  loss: number,
): Record<string, number> {
  const totals = groups.flatMap((g) => g.scores.flatMap(({ total }) => (total === null ? [] : [total])))
  if (totals.length === 0) return { loss }
  return { loss, mean_reward: mean(totals), max_reward: Math.max(...totals), ...placeFigures(groups, weights) }
}

function placeFigures(groups: readonly AnsweredGroup[], weights: PointRewardConfig): Record<string, number> {
  const replies = groups.flatMap((g) => g.replies)
  if (replies.length === 0) return {} // drawn before a restart: only the samples and their scores were kept
  const parts = replies.map(({ answer }) => scorePoints(answer.points, weights))
  const areas = replies.map(({ answer }) => maskArea(answer.points.target))
  const all = (of: (p: PointParts, i: number) => number, among: (p: PointParts) => boolean = () => true) =>
    mean(parts.flatMap((p, i) => (among(p) ? [of(p, i)] : [])))
  const [valid, placed, written] = [
    (p: PointParts) => p.valid,
    (p: PointParts) => p.kept > 0,
    (p: PointParts) => p.raw > 0,
  ]
  const aimed = (p: PointParts) => p.valid && !p.noTarget
  const figures = {
    format_strict: all((p) => flag(p.format === 1)),
    format_lenient: all((p) => flag(p.valid && p.format < 1)),
    invalid_rate: all((p) => flag(!p.valid)),
    points_per_output: all((p) => p.kept, valid),
    abstain_rate: all((p) => flag(p.raw === 0), valid),
    neg_in_gt_rate: all((p) => p.wrong / p.kept, placed),
    neg_in_confused_rate: all((p) => p.right / p.kept, placed),
    oob_rate: all((p) => p.oob / p.raw, written),
    dup_rate: all((p) => p.dup / p.raw, written),
    baseline_iou: all((p) => p.iou0, aimed),
    final_iou: all((p) => p.iou1, aimed),
    iou_gain: all((p) => p.iou1 - p.iou0, aimed),
    iou_gain_positive_rate: all((p) => flag(p.iou1 > p.iou0), aimed),
    none_right_rate: all(
      (p) => flag(p.saysNothing),
      (p) => p.valid && p.noTarget,
    ),
    confused_area_ratio: all((p, i) => p.confusedArea / areas[i]!, aimed),
    token_switched_rate: mean(replies.map(({ reply }) => flag(reply.switched))),
    sam_confidence: mean(replies.map(({ reply }) => reply.confidence)),
  }
  const known = Object.entries(figures).filter(([, value]) => !Number.isNaN(value))
  return Object.fromEntries(known.map(([name, value]) => [`points/${name}`, value]))
}

const flag = (value: boolean) => (value ? 1 : 0)

function mean(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0) / values.length
}
