// The same numbers before and after: held-out records, greedy, no noise. Each metric with a bootstrap 95 % interval.
import { encodeRle, type Mask, maskArea, maskIntersection, maskIou, maskUnion } from '../../mask/index.ts'
import { meteor } from '../../rewards/index.ts'
import type { Shown } from '../../rl/index.ts'
import { tidy } from '../../tensor/index.ts'
import type { Interval } from '../../tracking/index.ts'
import type { Evaluator, RecordRatios, RecordScore, WorkItem } from '../kind.ts'
import { summaryOf } from '../summary.ts'
import type { Cycle } from './config.ts'
import { askSome, describeAll, type Region, segmentAll } from './prompts.ts'

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
  const score = (items: readonly WorkItem[]) => scoreRecords(cycle, items)
  return { score, summary: summariseScores, ratios: ratiosOf, main: 'mask/giou' }
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
        shown: shownOf(items[i]!, captions[i] ?? '', mask),
      }
    })
  })
}

/** What the record has, what was said of its mask, and the mask that was drawn from its caption. */
function shownOf({ example }: WorkItem, caption: string, mask: Mask | null): Shown[] {
  return [
    { kind: 'mask', by: 'record', value: encodeRle(example.mask) },
    { kind: 'text', by: 'record', value: example.caption },
    { kind: 'mask', by: 'policy', value: mask && encodeRle(mask) },
    { kind: 'text', by: 'policy', value: caption },
  ]
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

const ratiosOf = (s: CycleScores): RecordRatios => ({
  'caption/meteor': [s.captionMeteor, 1],
  'mask/giou': [s.maskIou, 1],
  'mask/ciou': [s.intersection, s.union],
  'cycle/iou': [s.cycleIou, 1],
  'cycle/meteor': [s.cycleMeteor, 1],
  'answer/seg_rate': [s.oneSeg, 1],
})

/** Metric name -> mean and interval. The bootstrap is seeded: the same scores give the same digits. */
export function summariseScores(scores: readonly CycleScores[], seed: number): Record<string, Interval> {
  return summaryOf(scores, ratiosOf, seed)
}
