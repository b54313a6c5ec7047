import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bootstrapInterval } from '../../tracking/index.ts'
import type { ComparedRecord } from './compare.ts'
import { comparedMetrics, pointRatios } from './compared-metrics.ts'

function row(image: string, none: number, policy: number, more: Partial<ComparedRecord> = {}): ComparedRecord {
  const overlaps = { random: none, randomSame: none, heuristic: none, heuristicSame: none }
  const areas = { noneAreas: { both: 100 * none, either: 100 }, policyAreas: { both: 100 * policy, either: 100 } }
  const counts = { kept: 1, wrong: 0, right: 1, valid: true, format: 1, switched: false }
  const clicks = { errorCentre: [none + 0.25], errorCentreLogits: [none + 0.25], bestClick: none + 0.5 }
  const nothing = { target: true, saysNothing: false }
  return { id: image, image, none, policy, ...overlaps, ...areas, ...counts, ...clicks, ...nothing, ...more }
}

test('images are resampled, not records: what is said twice about each has the interval of what is said once', () => {
  const gains = [0.3, -0.1, 0.2, 0.05, 0.4, 0.1]
  const once = gains.map((g, i) => row(`image ${i}`, 0.5, 0.5 + g))
  const twice = once.flatMap((r) => [r, { ...r, id: `${r.id} again` }])
  const [single, double] = [once, twice].map((rows) => comparedMetrics(rows, 3)['points/gain']!)
  const plain = bootstrapInterval(
    once.map((r) => r.policy - r.none),
    { seed: 3 },
  )
  assert.deepEqual(single, plain)
  for (const key of ['mean', 'low', 'high'] as const) assert.ok(Math.abs(double![key] - plain[key]) < 1e-12, key)
})

test('shares are of the sums, cIoU of the areas, and records without an object have a separate metric', () => {
  const rows = [row('a', 0.4, 0.6), row('b', 0.2, 0.5), row('c', 0, 0, { target: false, saysNothing: true })]
  const found = comparedMetrics([...rows, row('d', 0, 0, { target: false })], 1)
  const near = (name: string, want: number) =>
    assert.ok(Math.abs(found[name]!.mean - want) < 1e-12, `${name}: ${found[name]!.mean}`)
  near('points/gain', 0.25)
  near('points/share_of_best_click', 0.5)
  near('points/ciou_none', 0.3)
  near('points/ciou', 0.55)
  near('points/none_right', 0.5)
})

test('if no click gains anything, the share of its gain is absent', () => {
  const rows = [0.001, -0.002, 0.003].map((gain, i) => row(`${i}`, 0.5, 0.5 + gain, { bestClick: 0.5 + i / 1000 }))
  assert.equal(comparedMetrics(rows, 1)['points/share_of_best_click'], undefined)
  assert.ok(comparedMetrics(rows, 1)['points/gain_best_click'])
})

test('every metric of a record is its own overlap, count or share', () => {
  const overlaps = { random: 0.42, randomSame: 0.43, heuristic: 0.44, heuristicSame: 0.45 }
  const clicks = { errorCentre: [0.5, 0.7, 0.55], errorCentreLogits: [0.55, 0.75], bestClick: 0.9 }
  const record = row('a', 0.4, 0.6, {
    ...overlaps,
    ...clicks,
    kept: 2,
    wrong: 1,
    right: 0,
    format: 0.5,
    switched: true,
  })
  const found = Object.entries(pointRatios(record)).flatMap(([name, ratio]) =>
    ratio ? [[name.replace('points/', ''), Math.round(1e9 * (ratio[0] / ratio[1])) / 1e9]] : [],
  )
  assert.deepEqual(Object.fromEntries(found), {
    ...{ gain: 0.2, gain_random: 0.02, gain_heuristic: 0.04, gain_error_centre: 0.15, gain_best_click: 0.5 },
    ...{ share_of_best_click: 0.4, gain_above_random: 0.18, gain_above_heuristic: 0.16 },
    gain_above_error_centre: 0.05,
    ...{ gain_random_same_count: 0.03, gain_heuristic_same_count: 0.05, gain_error_centre_logits: 0.35 },
    ...{ miou_none: 0.4, miou: 0.6, ciou_none: 0.4, ciou: 0.6, improved: 1, worsened: 0, format: 0.5, invalid: 0 },
    ...{ kept: 2, abstained: 0, token_switched: 1, in_object: 0.5, in_confused: 0, gain_at_2: 0.2 },
    ...{ gain_error_centre_1: 0.1, gain_error_centre_2: 0.3, gain_error_centre_3: 0.15 },
  })
  const ratios = (more: Partial<ComparedRecord>) => pointRatios(row('a', 0.4, 0.6, more))
  const silent = ratios({ valid: false, kept: 0 })
  assert.deepEqual(
    [silent['points/abstained'], silent['points/invalid']],
    [
      [0, 1],
      [1, 1],
    ],
    'not read is not abstained',
  )
  assert.deepEqual([silent['points/in_object'], silent['points/gain_at_0']?.[1]], [null, 1])
  assert.equal(ratios({ valid: true, kept: 0 })['points/abstained']![0], 1)
  assert.equal(ratios({ switched: true })['points/gain_unswitched'], null)
})

test('the share of the best click needs a gain that surely is above the noise', () => {
  const rows = [0, 0, 0, 0.2].map((gain, i) => row(`${i}`, 0.5, 0.5, { bestClick: 0.5 + gain }))
  const found = comparedMetrics(rows, 1)
  assert.ok(found['points/gain_best_click']!.mean > 0.01)
  assert.equal(found['points/share_of_best_click'], undefined)
})
