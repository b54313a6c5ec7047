// The metrics of a step, each against the share it is named after.
import assert from 'node:assert/strict'
import test from 'node:test'
import { type Mask, maskFromDense } from '../../mask/index.ts'
import { resolvePoints, rewardOfPoints } from './config.ts'
import { answerMetrics, stepMetrics } from './metrics.ts'
import type { PointAnswer } from './parse.ts'
import { type PointSample, scorePoints } from './reward.ts'

const weights = rewardOfPoints(resolvePoints({}))
const side = 10
/** The pixels left of column `x`. */
const left = (x: number): Mask =>
  maskFromDense(
    Uint8Array.from({ length: side * side }, (_, i) => (i % side < x ? 1 : 0)),
    side,
    side,
  )
const object = left(5) // 50 pixels
const tooMuch = left(7) // 20 pixels more

function reply(more: Partial<PointAnswer>, sample: Partial<PointSample> = {}, mask: Mask | null = null, sure = 0.5) {
  const counts = { kept: 0, raw: 0, oob: 0, dup: 0, extra: 0, ...more.counts }
  const plain = { valid: true, format: 1, negatives: [], positives: [], box: null, stop: false, none: false }
  const answer = { ...plain, ...more, counts } as PointAnswer
  const frame = { width: side, height: side }
  const turns = [{ answer, mask }]
  const points = { target: object, mask0: tooMuch, frame, mode: 'negatives', turns, manyTurns: false, ...sample }
  return { answer: { points }, reply: { switched: sure > 0.5, confidence: sure } }
}

test('shares are of all answers, of those that can be read, or of those that place points', () => {
  const one = (negatives: [number, number][], more: object) => ({
    negatives,
    counts: { kept: 1, raw: 2, oob: 0, dup: 0, extra: 0, ...more },
  })
  const replies = [
    reply(one([[6.5, 2.5]], { oob: 1 }), {}, object, 1), // in what is too much, and the mask is right afterwards
    reply({
      ...one(
        [
          [1, 1],
          [9, 9],
        ],
        { kept: 2, raw: 4, dup: 2 },
      ),
      format: 0.5,
    }), // in the object, and on the background
    reply({ valid: false, format: 0 }),
    reply({}), // places nothing
    reply({ stop: true }, { target: left(0) }), // nothing is there, and it says so
  ]
  const each = replies.map((r) => answerMetrics(r.answer.points as PointSample, r.reply, weights))
  const found = (name: string) => {
    const values = each.flatMap((metrics) => metrics[name] ?? [])
    return values.reduce((a, b) => a + b, 0) / values.length
  }
  const before = 50 / 70
  const expected = {
    format_strict: 3 / 5,
    format_lenient: 1 / 5,
    invalid_rate: 1 / 5,
    points_per_output: 3 / 4,
    abstain_rate: 2 / 4,
    neg_in_gt_rate: 1 / 4,
    neg_in_confused_rate: 1 / 2,
    oob_rate: 1 / 4,
    dup_rate: 1 / 4,
    baseline_iou: before,
    final_iou: (1 + 2 * before) / 3,
    iou_gain: (1 - before) / 3,
    iou_gain_positive_rate: 1 / 3,
    none_right_rate: 1,
    confused_area_ratio: 20 / 50,
    token_switched_rate: 1 / 5,
    sam_confidence: (1 + 4 * 0.5) / 5,
  }
  assert.deepEqual([...new Set(each.flatMap((metrics) => Object.keys(metrics)))].sort(), Object.keys(expected).sort())
  for (const [name, value] of Object.entries(expected))
    assert.ok(Math.abs(found(name) - value) < 1e-12, `${name}: ${found(name)}, not ${value}`)
})

test("a step logs the loss, and the prototype's names for rewards if there are any", () => {
  const scored = (...totals: (number | null)[]) => [
    { scores: totals.map((total) => ({ total, parts: {}, counted: [] })) },
  ]
  assert.deepEqual(stepMetrics(scored(1, 0.25, null, 0.5, 0.75), 0.125), {
    loss: 0.125,
    mean_reward: 0.625,
    max_reward: 1,
  })
  assert.deepEqual(stepMetrics(scored(null), 2), { loss: 2 })
})

test('without a target, "stop", an empty answer and an empty mask each abstain, and a point does not', () => {
  const says = (more: Partial<PointAnswer>, mask: Mask | null = null) =>
    scorePoints(reply(more, { target: left(0) }, mask).answer.points as PointSample, weights).saysNothing
  assert.deepEqual([says({ stop: true }), says({ none: true }), says({}, left(0)), says({})], [true, true, true, false])
})
