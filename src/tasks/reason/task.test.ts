import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { type Mask, maskArea, maskBox, maskFromDense, polygonsToMask, toDense } from '../../mask/index.ts'
import { type ClickMask, type ClickPrompt, openSegmenter } from '../../sam/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
import { resolvePoints } from '../points/config.ts'
import type { PointItem } from '../points/item.ts'
import { readAnswer } from './answer.ts'
import { resolveReason, rewardOfReason } from './config.ts'
import { scoreReason } from './reward.ts'
import { type ReasonSetup, readReplies } from './task.ts'

const folder = join(import.meta.dirname, '../../../assets/points-miniature/sam2-boxes')

test('an object with a broken box draws nothing: its point alone would be worth more than a wrong box', () => {
  const { record } = makePointScene(21, 0)
  const [x, y, w, h] = maskBox(record.mask)
  const [right, below, middle] = [x + w, y + h, [x + w / 2, y + h / 2]]
  const boxes = [[x, y, right, below], [right, y, x, below], [x, below, right, y], [x, y, x, below], [200, 200, 240, 240], [x, y, 300, below]] // biome-ignore format: one line
  const texts = boxes.map((box) => `<answer>${JSON.stringify([{ bbox_2d: box, point_2d: middle }])}</answer>`)
  const areas = noGrad(() =>
    tidy(() => {
      const sam = openSegmenter(folder, { device: 'cpu', dtype: 'float32' })
      const config = resolvePoints({ mode: 'joint', multimask: false })
      const setup = { sam, config, reason: resolveReason({ multimask: false }) } as ReasonSetup
      const frame = { width: record.image.width, height: record.image.height }
      const item = { record, frame, sam: sam.encode(record.image) } as PointItem
      return readReplies(setup, item, texts).map(({ mask }) => mask && maskArea(mask))
    }),
  )
  assert.ok(areas[0]! > 200, `${areas[0]}`)
  assert.deepEqual(areas.slice(1, 5), [null, null, null, null])
  assert.notEqual(areas[5], null, 'a box that reaches out of the image is cut to it')
})

test('each answer has the objects it wrote itself, cut to the image, each with a prompt', () => {
  const drawn: ClickPrompt[] = []
  const draw = (_: object, prompts: readonly ClickPrompt[]): ClickMask[] => {
    drawn.push(...prompts)
    return prompts.map(({ box }) => {
      const mask = polygonsToMask([[box![0], 0, box![2] - box![0], 1]], 1, 16)
      return { mask, confidence: 1, token: 0, logits: null }
    })
  }
  const sam = { inputSize: () => ({ width: 16, height: 16 }), draw }
  const reason = resolveReason()
  const setup = { sam, config: resolvePoints({ mode: 'joint' }), reason } as unknown as ReasonSetup
  const image = { width: 16, height: 1, data: new Uint8Array(48) }
  const record = { id: 'r', image, query: 'cups', mask: maskFromDense(new Uint8Array(16).fill(1, 0, 4), 1, 16) }
  const item = { record, frame: { width: 16, height: 16 }, sam: {} } as unknown as PointItem
  const text = (...boxes: [number, number][]) => {
    const objects = boxes.map(([x1, x2]) => ({ bbox_2d: [x1, 0, x2, 16], point_2d: [x1 + 1, 8] }))
    return `<think></think><answer>${JSON.stringify(objects)}</answer>`
  }
  const replies = readReplies(setup, item, [text([0, 2], [6, 8]), 'no', text([4, 40]), text([-3, 3])])
  const inside = (mask: Mask | null) => mask && [...toDense(mask).entries()].flatMap(([x, on]) => (on ? [x] : []))
  assert.deepEqual(replies.map(({ mask }) => inside(mask)), [[0, 1, 6, 7], null, [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [0, 1, 2]]) // biome-ignore format: one line
  assert.deepEqual(drawn.map(({ box }) => box), [[0, 0, 2, 16], [6, 0, 8, 16], [4, 0, 16, 16], [0, 0, 3, 16]]) // biome-ignore format: one line
})

test('two points may come in either order, are whole pixels, and may be farther away in larger images', () => {
  const reward = rewardOfReason({ preset: 'seg-zero', reward: {} })
  const truth = [{ box: [0, 0, 400, 300] as const, points: [[50, 50] as const, [350, 250] as const] }]
  const mask = maskFromDense(new Uint8Array(1), 1, 1)
  const pointOf = (points: readonly (readonly number[])[], frame: { width: number; height: number }) => {
    const written = { bbox: [0, 0, 400, 300], points_1: points[0], points_2: points[1] }
    const read = { form: 'single', coords: 'pixel', frame, allowNone: false } as const
    const answer = readAnswer(`<answer>${JSON.stringify(written)}</answer>`, read)
    return scoreReason({ text: '', answer, form: 'single', frame, truth, target: mask, mask }, reward).point
  }
  const [wide, small] = [{ width: 840, height: 420 }, { width: 420, height: 420 }] // biome-ignore format: one line
  const far = (y: number) => [[50, 50], [350, 250 - y]] // biome-ignore format: one line
  assert.equal(pointOf(far(0).toReversed(), small), 1, 'in the other order')
  assert.deepEqual([pointOf(far(120), wide), pointOf(far(120), small)], [1, 0], 'a mean of 60: limits of 100 and 50')
  const both = (y: number) => [[50, y], [350, 150]] // biome-ignore format: one line
  assert.deepEqual([pointOf(both(149.6), wide), pointOf(both(150), wide)], [1, 0], '149 and 150')
})
