// Which records are trained on: those without a target, those that SAM2 cuts out right already, and those its first mask misses.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { openLoader, openSource } from '../../data/index.ts'
import { encodePng } from '../../image/index.ts'
import { encodeRle, maskFromDense, maskIou } from '../../mask/index.ts'
import { openFamily, type VqaFamily } from '../../models/index.ts'
import { RewardsConfig } from '../../rewards/index.ts'
import { resolveGrpo } from '../../rl/index.ts'
import { openSam2, Sam2Predictor } from '../../sam/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
import type { WorkItem } from '../kind.ts'
import { clickedOverlaps } from './compare.ts'
import { resolvePoints } from './config.ts'
import { openItem } from './item.ts'
import { errorCentreCurve } from './known-clicks.ts'
import { type PointsRunConfig, points } from './points.ts'
import { replyTo } from './reply.ts'
import type { PointsReply } from './task.ts'

const assets = join(import.meta.dirname, '../../../assets/points-miniature')
const folder = mkdtempSync(join(tmpdir(), 'points-choose-'))
after(() => rmSync(folder, { recursive: true }))
let family: VqaFamily

const settings = (input: object = {}): PointsRunConfig => ({
  seed: 1,
  rl: resolveGrpo({ numGenerations: 2, maxCompletionLength: 20, beta: 0 }),
  checkpointing: false,
  train: ['lora'],
  rewards: RewardsConfig.parse({}),
  points: resolvePoints({ sam: join(assets, 'sam2'), imageSize: 112, wording: 'short', maxPoints: 1, ...input }),
})
const { image } = makePointScene(1, 4).record
const nothing = maskFromDense(new Uint8Array(112 * 112), 112, 112)
const inScope = <T>(fn: () => T): T => noGrad(() => tidy(fn as () => never)) as T

before(() => {
  family = openFamily(join(assets, 'policy'), { dtype: 'float32' }) as VqaFamily
})

test('records without a target are left out and counted, or stay where the mode can ask about them', async () => {
  writeFileSync(join(folder, 'image.png'), await encodePng(image))
  const { mask } = makePointScene(1, 4).record
  const line = { image: 'image.png', query: 'the red cup' }
  const lines = [
    { id: 'object', ...line, mask: encodeRle(mask) },
    { id: 'bare', ...line, mask: encodeRle(nothing) },
    { id: 'boxed', ...line, mask: encodeRle(nothing), box: [3, 4, 30, 40] },
  ]
  const path = join(folder, 'records.jsonl')
  writeFileSync(path, lines.map((l) => JSON.stringify(l)).join('\n'))
  const read = async (input: object) => {
    const source = await openSource(path)
    const order = { workers: 0, shuffle: false, maxRejectFraction: 0, onBadRecord: 'stop' as const }
    const loader = openLoader(source, order, undefined, null, points.recordRules!(settings(input)))
    const ids: string[] = []
    for await (const example of loader) ids.push(example.id)
    await loader.close()
    await source.close()
    return [ids.join(), loader.rejects['empty-mask'] ?? 0]
  }
  assert.deepEqual(await read({}), ['object', 2])
  assert.deepEqual(await read({ noTarget: 'keep' }), ['object,boxed', 1])
  assert.deepEqual(await read({ noTarget: 'keep', mode: 'joint' }), ['object,bare,boxed', 0])
})

test('without a target the empty answer is right, and the evaluation has a separate metric for it', () => {
  const config = settings({ mode: 'joint', noTarget: 'keep' })
  const item: WorkItem = {
    id: 'n',
    example: { id: 'n', image, mask: nothing, caption: 'a cup', meta: {} },
    features: {},
  }
  const [task] = points.build(family, config)
  const texts = ['[]', '{"bbox_2d":[20,20,90,90],"points":[[50,50]],"negative_points":[]}', 'no']
  const group = texts.map((text) => ({ ids: Int32Array.of(1), text, finished: true, logps: Float32Array.of(-1) }))
  const [replies] = inScope(() => task!.answer([item], [group])) as PointsReply[][]
  const [right, wrong, invalid] = replies!.map((r) => r.metrics)
  assert.deepEqual(
    [right, wrong, invalid].map((f) => f!['none_right_rate']),
    [1, 0, undefined],
  )
  assert.equal(right!['iou_gain'], undefined)
  const evaluator = points.evaluator(family, config)
  const scores = inScope(() => evaluator.score([item]))
  assert.deepEqual(Object.keys(evaluator.summary(scores, 1)), ['points/none_right'])
})

test('a record without points is prompted by its box, whatever kind of prompt is asked for', () => {
  const meta = { box: [20, 20, 90, 90], points: [] }
  const item: WorkItem = { id: 'b', example: { id: 'b', image, mask: nothing, caption: 'a cup', meta }, features: {} }
  const [task] = points.build(family, settings({ noTarget: 'keep' }))
  const said = { ids: Int32Array.of(1), text: '[]', finished: true, logps: Float32Array.of(-1) }
  const [replies] = inScope(() => task!.answer([item], [[said]])) as PointsReply[][]
  const { points: clicks, box } = replies![0]!.reply.prompt!
  assert.equal(clicks.length, 0)
  assert.deepEqual(
    box,
    [20, 20, 90, 90].map((v) => (v * 96) / 112),
  )
})

test("in joint, clicks are added to the policy's own prompt, and there are none without one", () => {
  const config = settings({ mode: 'joint', previousMask: 'logits', maxPoints: 2 })
  const sam = new Sam2Predictor(openSam2(config.points.sam, { dtype: 'float32' }).model)
  const setup = { policy: family, sam, config: resolvePoints(config.points), maxNewTokens: 20 }
  inScope(() => {
    const item = openItem(setup, makePointScene(1, 4).record)
    const texts = ['{"bbox_2d":[20,20,90,90],"points":[[50,50]],"negative_points":[]}', 'no'].map((text) => ({
      ...{ ids: Int32Array.of(1), text, finished: true, logps: Float32Array.of(-1) },
    }))
    const [own, none] = replyTo(setup, item, texts)
    const first = maskIou(item.record.mask, own!.mask0!)
    const [without, clicked] = clickedOverlaps(setup, item, own!.prompt, [[], [[60, 60]]])
    assert.equal(without, first)
    assert.notEqual(clicked, first)
    assert.deepEqual(clickedOverlaps(setup, item, none!.prompt, [[], [[60, 60]]]), [0, 0])
    assert.deepEqual(errorCentreCurve(setup, item, none!.prompt, false), [0, 0])
    assert.equal(errorCentreCurve(setup, item, own!.prompt, true).length, 2)
  })
})

test('before training, scenes with nothing to correct are left out but for a share, and all is said in a line', async () => {
  const chooser = points.chooser!(family, settings({ keepEasy: 0.5 }))!
  const source = await openSource('neighbours:24')
  const numbers = []
  for (let i = 0; i < 24; i++) {
    const example = await source.get(i)
    numbers.push(inScope(() => chooser.look(example)))
  }
  const alone = Array.from({ length: 24 }, (_, i) => makePointScene(0, i).parts.length === 1)
  const errors = numbers.map(([, error, target]) => error! / target!)
  assert.ok(
    alone.every((single, i) => !single || errors[i]! < 0.3),
    'a scene without a neighbour is cut out nearly right',
  )
  const made = [null, [0.01, 90, 100], [0.98, 1, 100], [0.5, 50, 100], [0.6, 0, 100]]
  assert.deepEqual(chooser.choose(made), {
    kept: [0, 3, 4],
    summary:
      '2 of 4 records are trained on; 1 left out: the first mask misses the object (IoU below 0.05); 2 easy: nothing to correct, 1 of them kept',
  })
  for (const input of [{ keepEasy: null }, { mode: 'joint' }, { preset: 'origin' }])
    assert.equal(points.chooser!(family, settings(input)), null, JSON.stringify(input))
  await source.close()
})
