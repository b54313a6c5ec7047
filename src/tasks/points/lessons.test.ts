// The supervised warm start: what a record teaches in each mode can be read by the parser, and its loss is a plain cross-entropy.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { before, test } from 'node:test'
import { alone } from '../../distributed/index.ts'
import { teacherForce } from '../../llm/index.ts'
import { errorCentre, type Mask, maskFromDense } from '../../mask/index.ts'
import { openFamily, type VqaFamily } from '../../models/index.ts'
import { addLora, tensorAt } from '../../nn/index.ts'
import { openSam2, Sam2Predictor } from '../../sam/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
import type { PointMode } from './answer-config.ts'
import { derivePrompt, heuristicNegatives } from './click-geometry.ts'
import { type PointsInput, resolvePoints } from './config.ts'
import { printedPoint } from './frame.ts'
import { drawFirst, positiveOf } from './item.ts'
import { lessonOf, pointLessons } from './lessons.ts'
import { parsePointAnswer } from './parse.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden')
const { record } = makePointScene(5, 1)
let policy: VqaFamily
let sam: Sam2Predictor
const setupOf = (input: PointsInput) => ({
  ...{ policy, sam, maxNewTokens: 12 },
  config: resolvePoints({ imageSize: 112, ...input }),
})

before(() => {
  policy = openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' }) as VqaFamily
  sam = new Sam2Predictor(openSam2(join(golden, 'sa2va-tiny'), { dtype: 'float32' }).model)
})

const frame = { width: 112, height: 112 }
const taught = (input: PointsInput, of = record) =>
  noGrad(() => tidy(() => lessonOf(setupOf(input), of).text as never)) as string

test('a record teaches an answer of the form that is asked for, in every mode, wording and frame of coordinates', () => {
  for (const mode of ['negatives', 'second-look', 'joint'] as const satisfies PointMode[])
    for (const wording of ['full', 'short'] as const)
      for (const coords of ['pixel', 'thousand', 'unit'] as const) {
        const input = { mode, wording, coords, maxPoints: 2 }
        const answer = parsePointAnswer(taught(input), frame, resolvePoints(input))
        assert.deepEqual([answer.valid, answer.format, answer.counts.oob], [true, 1, 0], JSON.stringify(input))
      }
})

test('negatives are the heuristic ones, joint has the box and points of the record, and nothing is said of nothing', () => {
  const print = (p: readonly [number, number]) => printedPoint(p, 'pixel', frame, record.image)
  const outside = heuristicNegatives(record.mask, 2).map(print)
  const read = (input: PointsInput) => parsePointAnswer(taught(input), frame, resolvePoints(input))
  assert.deepEqual(read({ maxPoints: 2 }).negatives, outside)
  const { box, points } = derivePrompt(record.mask)
  const joint = read({ mode: 'joint', maxPoints: 2 })
  assert.deepEqual([joint.negatives, joint.positives, joint.box], [outside, points.map(print), box])
  const nothing = { ...record, mask: maskFromDense(new Uint8Array(112 * 112), 112, 112), points: [[5, 5] as const] }
  assert.equal(taught({ mode: 'joint' }, nothing), '[]')
  assert.equal(taught({}, nothing), '[]')
  assert.throws(() => pointLessons(setupOf({ thinking: true }), false), /thinking: expected false in sft/)
})

test('in second-look the one click that corrects the mask is taught, as negative or positive', () => {
  const input = { mode: 'second-look', maxPoints: 2 } as const
  const setup = setupOf(input)
  const print = (p: readonly [number, number]) => printedPoint(p, 'pixel', frame, record.image)
  const drawn = noGrad(() => tidy(() => drawFirst(setup, sam.encode(record.image), record, positiveOf(record)).mask as never)) as Mask // biome-ignore format: one line
  const { point, label } = errorCentre(record.mask, drawn)!
  const { negatives, positives } = parsePointAnswer(taught(input), frame, setup.config)
  const [said, other] = label === 1 ? [positives, negatives] : [negatives, positives]
  assert.deepEqual([said, other], [[print(point)], []])
})

test('the loss is the mean over records of the cross-entropy of a token, and its gradient reaches the adapters', async () => {
  const setup = setupOf({ maxPoints: 1 })
  const examples = [1, 2].map((i) => {
    const { id, image, mask, query } = makePointScene(5, i).record
    return { id, image, mask, caption: query, meta: {} }
  })
  const { on, targets } = policy.adapter
  addLora(on, targets, { rank: 2, alpha: 4, seed: 1 })
  const params = policy.module
    .slots()
    .filter((slot) => /lora_B\.weight$/.test(slot.name))
    .map(tensorAt)
  for (const t of params) t.requiresGrad_(true)
  const place = { seed: 1, step: 0, micro: 0, share: 0.5, world: alone }
  const { loss } = await pointLessons(setup, false).learn(examples, place)
  const plain = examples.map(({ id, image, mask, caption }) =>
    noGrad(() =>
      tidy(() => {
        const { prompt, answer } = lessonOf(setup, { id, image, mask, query: caption })
        return (-teacherForce(policy.model, prompt, [answer]).logProbs(1).logps.sum().item() / answer.length) as never
      }),
    ),
  ) as number[]
  assert.ok(Math.abs(loss! - (plain[0]! + plain[1]!) / 4) < 1e-5, `${loss} against half the mean of ${plain}`)
  const gradients = () => tidy(() => params.flatMap((t) => t.grad()!.numbers()))
  const whole = gradients()
  assert.ok(
    whole.some((g) => g !== 0),
    'a gradient',
  )
  for (const t of params) t.setGrad(null)
  const parts: number[] = []
  for (const rank of [0, 1]) {
    const world = { ...alone, rank, size: 2 }
    parts.push((await pointLessons(setup, false).learn(examples, { ...place, world })).loss!)
  }
  assert.ok(Math.abs(parts[0]! + parts[1]! - loss!) < 1e-5, `${parts} of two processes add up to ${loss}`)
  assert.notEqual(parts[0], parts[1])
  const largest = Math.max(...whole.map(Math.abs)) // sums of float32 in another order: 2^-23, 100 times
  gradients().forEach((g, i) => {
    assert.ok(Math.abs(g - whole[i]!) <= 2 ** -16 * largest, `gradient ${i}: ${g} against ${whole[i]}`)
  })
})
