// The same numbers before and after: held-out records, greedy, no noise. Each metric with a bootstrap 95 % interval.
import type { Example } from '../data/index.ts'
import { type Mask, maskArea, maskIntersection, maskIou, maskUnion } from '../mask/index.ts'
import { type Features, prepareImage } from '../models/index.ts'
import { meteor } from '../rewards/index.ts'
import { tidy } from '../tensor/index.ts'
import { bootstrapInterval, bootstrapRatioInterval, type Interval } from '../tracking/index.ts'
import { describeAll, segmentAll, type TaskContext } from './tasks/index.ts'

export interface RecordScores {
  id: string
  captionMeteor: number
  maskIou: number
  intersection: number
  union: number
  cycleIou: number
  cycleMeteor: number
  oneSeg: number
}

export type Evaluation = Record<string, Interval>

/** Scores of each record under the weights in place. */
export function evaluateBatch(
  context: TaskContext,
  examples: readonly Example[],
  onBatch?: () => void,
): RecordScores[] {
  const { model, cfg } = context.learner.loaded
  return tidy(() => {
    const features = examples.map((e) =>
      model.encode(prepareImage(e.image, cfg, { maxTiles: context.config.maxTiles ?? undefined })),
    )
    const captions = describeAll(
      context,
      examples.map((e, i) => ({ features: features[i]!, mask: e.mask })),
    )
    const found = segmentAll(
      context,
      examples.map((e, i) => ({ features: features[i]!, caption: e.caption })),
    )
    const again = redraw(context, features, captions)
    const retold = retell(
      context,
      features,
      found.map((f) => f.mask),
    )
    onBatch?.()
    return examples.map((e, i) => {
      const mask = found[i]!.mask
      return {
        id: e.id,
        captionMeteor: meteor(e.caption, captions[i] ?? ''),
        maskIou: mask ? maskIou(e.mask, mask) : 0,
        intersection: mask ? maskArea(maskIntersection(e.mask, mask)) : 0,
        union: mask ? maskArea(maskUnion(e.mask, mask)) : maskArea(e.mask),
        cycleIou: again[i] ? maskIou(e.mask, again[i]!) : 0,
        cycleMeteor: meteor(e.caption, retold[i] ?? ''),
        oneSeg: found[i]!.segs === 1 ? 1 : 0,
      }
    })
  })
}

/** mask -> caption -> mask' */
function redraw(
  context: TaskContext,
  features: readonly Features[],
  captions: readonly (string | null)[],
): (Mask | null)[] {
  const asked = captions
    .map((caption, i) => ({ caption: caption ?? '', features: features[i]!, i }))
    .filter((p) => p.caption !== '')
  const out: (Mask | null)[] = captions.map(() => null)
  segmentAll(context, asked).forEach((hit, j) => {
    out[asked[j]!.i] = hit.mask
  })
  return out
}

/** caption -> mask -> caption' */
function retell(
  context: TaskContext,
  features: readonly Features[],
  masks: readonly (Mask | null)[],
): (string | null)[] {
  const regions = masks.map((mask, i) => ({ mask, features: features[i]!, i })).filter((r) => r.mask !== null)
  const out: (string | null)[] = masks.map(() => null)
  describeAll(
    context,
    regions.map((r) => ({ mask: r.mask!, features: r.features })),
  ).forEach((caption, j) => {
    out[regions[j]!.i] = caption
  })
  return out
}

/** Metric name -> mean and interval. The bootstrap is seeded: the same scores give the same digits. */
export function summariseScores(scores: readonly RecordScores[], seed: number): Evaluation {
  const of = (pick: (s: RecordScores) => number) => bootstrapInterval(scores.map(pick), { seed })
  return {
    'caption/meteor': of((s) => s.captionMeteor),
    'mask/giou': of((s) => s.maskIou),
    'mask/ciou': bootstrapRatioInterval(
      scores.map((s) => s.intersection),
      scores.map((s) => s.union),
      { seed },
    ),
    'cycle/iou': of((s) => s.cycleIou),
    'cycle/meteor': of((s) => s.cycleMeteor),
    'answer/seg_rate': of((s) => s.oneSeg),
  }
}
