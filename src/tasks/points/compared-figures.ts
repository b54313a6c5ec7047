// Figures of an evaluation from the overlaps of its records. Intervals resample images: the sentences about one stay together.
import { bootstrapRatioInterval, type Interval } from '../../tracking/index.ts'
import type { Areas, ComparedRecord } from './compare.ts'

/** Means with their 95 % intervals, under the names that are logged. Records without an object have a figure of their own. */
export function comparedFigures(all: readonly ComparedRecord[], seed: number): Record<string, Interval> {
  const [rows, nothing] = [all.filter((r) => r.target), all.filter((r) => !r.target)]
  const right = (r: ComparedRecord) => (r.saysNothing ? 1 : 0)
  const none: Record<string, Interval> =
    nothing.length > 0 ? { 'points/none_right': ratioByImage(nothing, right, () => 1, seed) } : {}
  return rows.length > 0 ? { ...gainFigures(rows, seed), ...none } : none
}

type Figure = (r: ComparedRecord) => number

/** Sum over records of one figure over that of another; the interval draws images. */
function ratioByImage(rows: readonly ComparedRecord[], above: Figure, below: Figure, seed: number): Interval {
  const sums = (of: Figure) => {
    const byImage = new Map<string, number>()
    for (const r of rows) byImage.set(r.image, (byImage.get(r.image) ?? 0) + of(r))
    return [...byImage.values()]
  }
  return bootstrapRatioInterval(sums(above), sums(below), { seed })
}

/** Below this gain there is nothing to have a share of: the ratio would be noise. */
const leastGain = 0.01

function shareOf(share: Interval, of: Interval): Record<string, Interval> {
  return of.low > leastGain ? { 'points/share_of_best_click': share } : {}
}

function gainFigures(rows: readonly ComparedRecord[], seed: number): Record<string, Interval> {
  const mean = (of: Figure, among = rows) => ratioByImage(among, of, () => 1, seed)
  const whole = (of: (r: ComparedRecord) => Areas) =>
    ratioByImage(
      rows,
      (r) => of(r).both,
      (r) => of(r).either,
      seed,
    )
  const last = (values: readonly number[]) => values.at(-1) ?? 0
  const gain = (r: ComparedRecord) => r.policy - r.none
  const best = (r: ComparedRecord) => r.bestClick - r.none
  const out: Record<string, Interval> = {
    'points/gain': mean(gain),
    'points/gain_random': mean((r) => r.random - r.none),
    'points/gain_heuristic': mean((r) => r.heuristic - r.none),
    'points/gain_error_centre': mean((r) => last(r.errorCentre) - r.none),
    'points/gain_best_click': mean(best),
    ...shareOf(ratioByImage(rows, gain, best, seed), mean(best)),
    'points/gain_above_random': mean((r) => r.policy - r.random),
    'points/gain_above_heuristic': mean((r) => r.policy - r.heuristic),
    'points/gain_random_same_count': mean((r) => r.randomSame - r.none),
    'points/gain_heuristic_same_count': mean((r) => r.heuristicSame - r.none),
    'points/gain_error_centre_logits': mean((r) => last(r.errorCentreLogits) - r.none),
    'points/miou_none': mean((r) => r.none),
    'points/miou': mean((r) => r.policy),
    'points/ciou_none': whole((r) => r.noneAreas),
    'points/ciou': whole((r) => r.policyAreas),
    'points/improved': mean((r) => (gain(r) > 0.01 ? 1 : 0)),
    'points/worsened': mean((r) => (gain(r) < -0.01 ? 1 : 0)),
    'points/format': mean((r) => r.format),
    'points/invalid': mean((r) => (r.valid ? 0 : 1)),
    'points/kept': mean((r) => r.kept),
    'points/abstained': mean((r) => (r.valid && r.kept === 0 ? 1 : 0)),
    'points/token_switched': mean((r) => (r.switched ? 1 : 0)),
  }
  rows[0]?.errorCentre.forEach((_, n) => {
    out[`points/gain_error_centre_${n + 1}`] = mean((r) => r.errorCentre[n]! - r.none)
  })
  const groups: [string, (r: ComparedRecord) => boolean][] = [0, 1, 2, 3].map((n) => [
    `points/gain_at_${n}`,
    (r) => r.kept === n,
  ])
  groups.push(['points/gain_unswitched', (r) => !r.switched])
  for (const [name, belongs] of groups) {
    const among = rows.filter(belongs)
    if (among.length > 0) out[name] = mean(gain, among)
  }
  const placed = rows.filter((r) => r.kept > 0)
  if (placed.length > 0) {
    out['points/in_object'] = mean((r) => r.wrong / r.kept, placed)
    out['points/in_confused'] = mean((r) => r.right / r.kept, placed)
  }
  return out
}
