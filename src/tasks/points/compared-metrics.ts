// Metrics of an evaluation from the overlaps of its records. Intervals resample images: the sentences about one stay together, and the composed
// pictures of one object.
import type { Interval } from '../../tracking/index.ts'
import type { RecordRatios } from '../kind.ts'
import { summaryOf } from '../summary.ts'
import type { Areas, ComparedRecord } from './compare.ts'

/** Below this gain there is nothing to have a share of: the ratio would be noise. */
const leastGain = 0.01
const shareName = 'points/share_of_best_click'

/** Means with their 95 % intervals, under the names that are logged. Records without an object have a separate metric. */
export function comparedMetrics(all: readonly ComparedRecord[], seed: number): Record<string, Interval> {
  const { [shareName]: share, ...metrics } = summaryOf(all, pointRatios, seed, (r) => r.image)
  const best = metrics['points/gain_best_click']
  return share && best && best.low > leastGain ? { ...metrics, [shareName]: share } : metrics
}

type Ratio = readonly [number, number]

export function pointRatios(r: ComparedRecord): RecordRatios {
  if (!r.target) return { 'points/none_right': [r.saysNothing ? 1 : 0, 1] }
  const gain = r.policy - r.none
  const last = (values: readonly number[]) => (values.at(-1) ?? 0) - r.none
  const share = (is: boolean): Ratio => [is ? 1 : 0, 1]
  const areas = ({ both, either }: Areas): Ratio => [both, either]
  const only = (is: boolean, value: number): Ratio | null => (is ? [value, 1] : null)
  const clicks = r.errorCentre.map(
    (overlap, n) => [`points/gain_error_centre_${n + 1}`, [overlap - r.none, 1]] as const,
  )
  const counts = [0, 1, 2, 3].map((n) => [`points/gain_at_${n}`, only(r.kept === n, gain)] as const)
  return {
    'points/gain': [gain, 1],
    'points/gain_random': [r.random - r.none, 1],
    'points/gain_heuristic': [r.heuristic - r.none, 1],
    'points/gain_error_centre': [last(r.errorCentre), 1],
    'points/gain_best_click': [r.bestClick - r.none, 1],
    [shareName]: [gain, r.bestClick - r.none],
    'points/gain_above_random': [r.policy - r.random, 1],
    'points/gain_above_heuristic': [r.policy - r.heuristic, 1],
    'points/gain_above_error_centre': [gain - last(r.errorCentre), 1],
    'points/gain_random_same_count': [r.randomSame - r.none, 1],
    'points/gain_heuristic_same_count': [r.heuristicSame - r.none, 1],
    'points/gain_error_centre_logits': [last(r.errorCentreLogits), 1],
    'points/miou_none': [r.none, 1],
    'points/miou': [r.policy, 1],
    'points/ciou_none': areas(r.noneAreas),
    'points/ciou': areas(r.policyAreas),
    'points/improved': share(gain > 0.01),
    'points/worsened': share(gain < -0.01),
    'points/format': [r.format, 1],
    'points/invalid': share(!r.valid),
    'points/kept': [r.kept, 1],
    'points/abstained': share(r.valid && r.kept === 0),
    'points/token_switched': share(r.switched),
    ...Object.fromEntries([...clicks, ...counts]),
    'points/gain_unswitched': only(!r.switched, gain),
    'points/in_object': only(r.kept > 0, r.wrong / r.kept),
    'points/in_confused': only(r.kept > 0, r.right / r.kept),
  }
}
