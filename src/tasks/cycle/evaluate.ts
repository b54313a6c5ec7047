// The same numbers before and after: held-out records, greedy, no noise. Each metric with a bootstrap 95 % interval.
import { type Mask, maskArea, maskIntersection, maskIou, maskUnion } from '../../mask/index.ts'
import { meteor } from '../../rewards/index.ts'
import { tidy } from '../../tensor/index.ts'
import { bootstrapInterval, bootstrapRatioInterval, type Interval } from '../../tracking/index.ts'
import type { Evaluator, RecordScore, WorkItem } from '../kind.ts'
import { askSome, describeAll, type Region, segmentAll } from './ask.ts'
import type { Cycle } from './config.ts'

export interface CycleScores extends RecordScore {
  captionMeteor: number
  maskIou: number
  intersection: number
  union: number
  cycleIou: number
  cycleMeteor: number
  oneSeg: number
}

export function cycleEvaluator(cycle: Cycle): Evaluator<CycleScores> {
  return { score: (items) => scoreRecords(cycle, items), summary: summariseScores }
}

/** Scores of each record under the weights in place. */
export function scoreRecords(cycle: Cycle, items: readonly WorkItem[]): CycleScores[] {
  return tidy(() => {
    const captions = describeAll(
      cycle,
      items.map(({ features, example }) => ({ features, mask: example.mask })),
    )
    const found = segmentAll(
      cycle,
      items.map(({ features, example }) => ({ features, caption: example.caption })),
    )
    const again = redraw(cycle, items, captions)
    const retold = retell(
      cycle,
      items,
      found.map((f) => f.mask),
    )
    return items.map(({ example: e }, i) => {
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
function redraw(cycle: Cycle, items: readonly WorkItem[], captions: readonly (string | null)[]): (Mask | null)[] {
  const phrases = captions.map((caption, i) => ({ caption: caption ?? '', features: items[i]!.features }))
  return askSome(
    phrases,
    (p) => p.caption !== '',
    (some) => segmentAll(cycle, some).map((hit) => hit.mask),
  )
}

/** caption -> mask -> caption' */
function retell(cycle: Cycle, items: readonly WorkItem[], masks: readonly (Mask | null)[]): (string | null)[] {
  const regions = masks.map((mask, i) => ({ mask, features: items[i]!.features }))
  return askSome(
    regions,
    (r) => r.mask !== null,
    (some) => describeAll(cycle, some as readonly Region[]),
  )
}

/** Metric name -> mean and interval. The bootstrap is seeded: the same scores give the same digits. */
export function summariseScores(scores: readonly CycleScores[], seed: number): Record<string, Interval> {
  const of = (pick: (s: CycleScores) => number) => bootstrapInterval(scores.map(pick), { seed })
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
