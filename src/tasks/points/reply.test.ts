// How answers become prompts of the segmenter and masks, with one that notes what it is given.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { maskArea, maskFromDense } from '../../mask/index.ts'
import type { ClickMask, ClickPrompt } from '../../sam/index.ts'
import { zeros } from '../../tensor/index.ts'
import { areasOf } from './compare.ts'
import { type PointsInput, resolvePoints } from './config.ts'
import type { PointItem, PointSetup } from './item.ts'
import { replyToLooks, wordsOf } from './multi-turn.ts'
import { drawOnce, replyTo } from './reply.ts'

const frame = { width: 8, height: 8 }
/** A mask of the first pixels. */
const pixels = (count: number) => maskFromDense(new Uint8Array(64).fill(1, 0, count), 8, 8)
const logits = zeros([1, 1, 2, 2])

/** Each prompt's mask has as many pixels as the prompt has points, and is the mask of that number. */
function scene(input: PointsInput, tokenOf = (points: number) => points) {
  const drawn: ClickPrompt[] = []
  const draw = (_: object, prompts: readonly ClickPrompt[]): ClickMask[] => {
    drawn.push(...prompts)
    return prompts.map(({ points }, i) => {
      return { mask: pixels(points.length), confidence: i, token: tokenOf(points.length), logits: null }
    })
  }
  const config = resolvePoints({ sam: 'none', positivePrompt: 'point', coords: 'pixel', ...input })
  const setup = { config, sam: { inputSize: () => ({ width: 16, height: 16 }), draw } } as unknown as PointSetup
  const record = { id: 'r', image: { ...frame, data: new Uint8Array(192) }, query: 'a cup', mask: pixels(10) }
  const first = { mask: pixels(1), confidence: 0.5, token: 1, logits }
  const item = {
    record,
    frame,
    positive: { box: [1, 1, 5, 5], points: [[2, 3]] },
    first,
    sam: {},
  } as unknown as PointItem
  const reply = (...texts: string[]) => {
    drawn.length = 0
    const said = texts.map((text) => ({ ids: new Int32Array(1), logps: new Float32Array(1), text, finished: true }))
    return replyTo(setup, item, said)
  }
  return { setup, item, drawn, reply }
}

test('kept points are added to the prompt of the record in the frame of the segmenter, with the logits of the first mask', () => {
  const { drawn, reply } = scene({ previousMask: 'logits' })
  const [one, none, bad] = reply('[[6, 1], [1, 7]]', '[]', 'no')
  assert.deepEqual(drawn, [{ points: [[4, 6], [12, 2], [2, 14]], labels: [1, 0, 0], box: null, previous: logits }]) // biome-ignore format: one line
  assert.deepEqual(
    [one!.mask0, one!.mask1].map((mask) => maskArea(mask!)),
    [1, 3],
  )
  assert.deepEqual([one!.confidence, one!.switched], [0, true])
  for (const reply of [none!, bad!])
    assert.deepEqual([reply.mask1, reply.confidence, reply.switched], [null, 0.5, false])
  const plain = scene({})
  plain.reply('[[6, 1]]')
  assert.equal('previous' in plain.drawn[0]!, false)
})

test('the choice of a mask is switched only if another of them is taken after the points', () => {
  const { item, reply } = scene({})
  Object.assign(item.first!, { token: 2 })
  assert.deepEqual(
    reply('[[6, 1]]', '[[6, 1], [1, 7]]').map((one) => one.switched),
    [false, true],
  )
})

test('over several looks the choice stays switched once it was, and the form is the worst of them', () => {
  const { setup, item } = scene({ mode: 'second-look', turns: 3 }, (points) => Math.min(2, points))
  const say = (text: string) => ({ ids: new Int32Array(1), logps: new Float32Array(1), text, finished: true })
  const look = '{"negative_points": [[6, 1]], "positive_points": []}'
  const words = [
    say(`here: ${look}`),
    say('{"negative_points": [], "positive_points": [[1, 7]]}'),
    say('{"stop": true}'),
  ]
  const [reply] = replyToLooks(setup, item, [wordsOf(words)])
  assert.deepEqual(
    reply!.turns.map(({ mask }) => mask && maskArea(mask)),
    [2, 3, null],
  )
  assert.deepEqual([reply!.switched, maskArea(reply!.mask1!), reply!.answer.format], [true, 3, 0.5])
  assert.deepEqual([reply!.answer.valid, reply!.answer.counts.kept], [true, 2])
})

test('in joint the prompt is the answer itself: nothing is drawn for none or what cannot be read', () => {
  const { drawn, reply } = scene({ mode: 'joint', noTarget: 'keep' })
  const joint = (box: readonly number[]) => JSON.stringify({ bbox_2d: box, points: [[2, 2], [3, 3]], negative_points: [] }) // biome-ignore format: one line
  const [one, none, bad] = reply(joint([1, 1, 5, 5]), '[]', 'no')
  assert.deepEqual(drawn, [{ points: [[4, 4], [6, 6]], labels: [1, 1], box: [2, 2, 10, 10] }]) // biome-ignore format: one line
  assert.equal(maskArea(one!.mask0!), 2)
  for (const reply of [none!, bad!]) assert.deepEqual([reply.prompt, reply.mask0, reply.mask1], [null, null, null])
})

test('prompts that are alike are drawn once, also if others differ in the box alone', () => {
  const { setup, item, drawn } = scene({})
  const prompt = (x: number): ClickPrompt => ({ points: [[1, 1]], labels: [1], box: [0, 0, x, 4] })
  const masks = drawOnce(setup, item, [prompt(4), prompt(6), prompt(4)], { height: 8, width: 8, multimask: false, keepLogits: false }) // biome-ignore format: one line
  assert.equal(drawn.length, 2)
  assert.equal(masks[0], masks[2])
  assert.notEqual(masks[0], masks[1])
})

test('without a mask nothing is shared, and the object is all there is', () => {
  assert.deepEqual(areasOf(pixels(10), null), { both: 0, either: 10 })
  assert.deepEqual(areasOf(pixels(10), pixels(4)), { both: 4, either: 10 })
})
