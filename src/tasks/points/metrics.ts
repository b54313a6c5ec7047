// Metrics of the point task, under the names of its spec: how often answers can be read, where points land, and what the masks gain.
// `loss`, `mean_reward` and `max_reward` are the prototype's names.
import { maskArea } from '../../mask/index.ts'
import type { Scored } from '../../rl/index.ts'
import type { PointRewardConfig } from './answer-config.ts'
import type { PointReply } from './reply.ts'
import { type PointSample, scorePoints } from './reward.ts'

export function stepMetrics(
  groups: readonly { readonly scores: readonly Scored[] }[],
  loss: number,
): Record<string, number> {
  const totals = groups.flatMap((g) => g.scores.flatMap(({ total }) => (total === null ? [] : [total])))
  if (totals.length === 0) return { loss }
  const mean = totals.reduce((a, b) => a + b, 0) / totals.length
  return { loss, mean_reward: mean, max_reward: Math.max(...totals) }
}

const flag = (value: boolean) => (value ? 1 : 0)

/** Of one answer: a step logs the mean of each over the answers that have it. A rate is absent where it has no meaning. */
export function answerMetrics(
  sample: PointSample,
  { switched, confidence }: Pick<PointReply, 'switched' | 'confidence'>,
  weights: PointRewardConfig,
): Record<string, number> {
  const p = scorePoints(sample, weights)
  const aimed = p.valid && !p.noTarget
  return {
    format_strict: flag(p.format === 1),
    format_lenient: flag(p.valid && p.format < 1),
    invalid_rate: flag(!p.valid),
    ...(p.valid && { points_per_output: p.kept, abstain_rate: flag(p.raw === 0) }),
    ...(p.kept > 0 && { neg_in_gt_rate: p.wrong / p.kept, neg_in_confused_rate: p.right / p.kept }),
    ...(p.raw > 0 && { oob_rate: p.oob / p.raw, dup_rate: p.dup / p.raw }),
    ...(aimed && {
      baseline_iou: p.iou0,
      final_iou: p.iou1,
      iou_gain: p.iou1 - p.iou0,
      iou_gain_positive_rate: flag(p.iou1 > p.iou0),
      confused_area_ratio: p.confusedArea / maskArea(sample.target),
    }),
    ...(p.valid && p.noTarget && { none_right_rate: flag(p.saysNothing) }),
    token_switched_rate: flag(switched),
    sam_confidence: confidence,
  }
}
