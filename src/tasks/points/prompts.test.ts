import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Mismatch } from '../../core/index.ts'
import { resolvePoints, rewardOfPoints } from './config.ts'
import { markerText, pointQuestion, type QuestionParts } from './prompts.ts'

const square = { width: 840, height: 840 }
const parts = {
  query: 'the red cup',
  positive: { box: [10, 20, 30, 40] as const, points: [[12, 22] as const, [25, 35] as const] },
  model: square,
  original: square,
}

test('the question of mode negatives is the written-out one', () => {
  assert.equal(
    pointQuestion(parts, resolvePoints()),
    `Object of interest: the red cup
It is already marked by the point [12, 22]. A segmentation tool will cut out the marked object, but it may also take in nearby or similar-looking things.
Give at most 3 points that lie outside the object, each on a place the tool would most likely include by mistake.
If there is no such place, give an empty list.
Coordinates are pixels of this image, which is 840 wide and 840 high; (0, 0) is the top left corner.
Reply with a JSON list and nothing else, like [{"point_2d": [120, 45]}, {"point_2d": [300, 212]}].`,
  )
})

test('with showMask the question names the box of the first mask, or nothing', () => {
  const shown = (first: QuestionParts['first'], wording: 'full' | 'short') =>
    pointQuestion({ ...parts, first }, resolvePoints({ showMask: true, wording })).split('\n')
  const plain = pointQuestion(parts, resolvePoints()).split('\n')
  const full = shown([1, 2, 400, 839], 'full')
  assert.equal(full[2], 'What it cuts out now is red: the box [1, 2, 400, 839].')
  assert.deepEqual(full.toSpliced(2, 1), plain)
  assert.equal(
    shown([1, 2, 400, 839], 'short')[0],
    'the red cup at the point [12, 22], cut out the box [1, 2, 400, 839]. Points outside:',
  )
  assert.equal(shown(null, 'short')[0], 'the red cup at the point [12, 22], cut out nothing. Points outside:')
})

test('the questions of second-look and joint are the written-out ones', () => {
  assert.equal(
    pointQuestion(parts, resolvePoints({ mode: 'second-look', coords: 'thousand', positivePrompt: 'box' })),
    `Object of interest: the red cup
It was marked by the box [12, 24, 36, 48], and a segmentation tool cut it out. The red line is the border of the result.
Give at most 3 negative points, each on a place the tool took in by mistake, and at most 3 positive points, each on a part of the object the tool left out.
If the result is right, give two empty lists.
Coordinates are thousandths of the image's width and height, from 0 to 999; (0, 0) is the top left corner.
Reply with one JSON object and nothing else, like {"negative_points": [[120, 45]], "positive_points": [[300, 212]]}.`,
  )
  assert.equal(
    pointQuestion(parts, resolvePoints({ mode: 'joint', coords: 'unit', thinking: true })),
    `Object of interest: the red cup
Give its box, two points inside it, and at most 3 points outside it, each on a place a segmentation tool would most likely include by mistake.
Coordinates are fractions of the image's width and height, from 0 to 1; (0, 0) is the top left corner.
Think first inside <think></think>. Then give the JSON object inside <answer></answer>, like <think>...</think><answer>{"bbox_2d": [100, 40, 320, 260], "points": [[180, 120], [240, 200]], "negative_points": [[120, 45]]}</answer>.`,
  )
})

test('joint says how to answer when there is no such object, where records without a target are kept', () => {
  const [kept, dropped] = (['keep', 'drop'] as const).map((noTarget) =>
    pointQuestion(parts, resolvePoints({ mode: 'joint', noTarget })).split('\n'),
  )
  assert.equal(kept![2], 'If there is no such object in the image, reply with [].')
  assert.deepEqual(kept!.toSpliced(2, 1), dropped)
})

test('short wording keeps the query, the marker and what is asked for', () => {
  const short = (mode: 'negatives' | 'joint') => pointQuestion(parts, resolvePoints({ wording: 'short', mode }))
  assert.equal(short('negatives'), 'the red cup at the point [12, 22]. Points outside:')
  assert.equal(short('joint'), 'the red cup. Box and points:')
})

test('the marker names the box and its points, one or two', () => {
  const config = resolvePoints({ positivePrompt: 'box+points' })
  assert.equal(markerText(parts, config), 'the box [10, 20, 30, 40] and the points [12, 22], [25, 35]')
  const single = { ...parts, positive: { ...parts.positive, points: [[12, 22] as const] } }
  assert.equal(markerText(single, config), 'the box [10, 20, 30, 40] and the point [12, 22]')
})

test('a preset decides how answers are read unless a setting says otherwise, and joint rewards the overlap', () => {
  const origin = resolvePoints({ preset: 'origin', dupRadius: 0.5 })
  assert.deepEqual(
    [origin.allowEmpty, origin.oob, origin.dupRadius, origin.formatScore],
    [false, 'invalid', 0.5, 'binary'],
  )
  assert.equal(rewardOfPoints(resolvePoints({ mode: 'joint' })).iou, 1)
  assert.equal(rewardOfPoints(resolvePoints({ reward: { placement: 0 } })).placement, 0)
  assert.throws(() => resolvePoints({ maxPoints: 0 }), Mismatch)
})
