import assert from 'node:assert/strict'
import { join } from 'node:path'
import { before, test } from 'node:test'
import { Mismatch } from '../../core/index.ts'
import { maskIou, toDense } from '../../mask/index.ts'
import { openFamily } from '../../models/index.ts'
import { openRewards, RewardsConfig, scoreGroup } from '../../rewards/index.ts'
import { resolveGrpo, type Task } from '../../rl/index.ts'
import { openSam2, Sam2Predictor } from '../../sam/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
import { shownOf } from '../../tracking/index.ts'
import type { WorkItem } from '../kind.ts'
import { clickedOverlaps } from './compare.ts'
import { PointsConfig, type PointsInput, resolvePoints } from './config.ts'
import { openItem, positiveClicks } from './item.ts'
import { errorCentreCurve, searchBestClick } from './known-clicks.ts'
import { OpenItems } from './open-items.ts'
import { type PointsRunConfig, points } from './points.ts'
import { replyTo, sampleOf } from './reply.ts'
import { requireAsking } from './segmenter.ts'
import type { PointsReply } from './task.ts'

const golden = join(import.meta.dirname, '../../../tests/fixtures/golden')
const config: PointsRunConfig = {
  seed: 1,
  rl: resolveGrpo({ numGenerations: 3, maxCompletionLength: 8, beta: 0 }),
  checkpointing: false,
  train: ['lora'],
  rewards: RewardsConfig.parse({}),
  points: PointsConfig.parse({ sam: join(golden, 'sa2va-tiny'), imageSize: 112 }),
}
let task: Task
let item: WorkItem

before(() => {
  const family = openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' })
  task = points.build(family, config)[0]!
  const { id, image, mask, query } = makePointScene(2, 3).record
  item = { id, example: { id, image, mask, caption: query, meta: {} }, features: {} }
})

const sample = (text: string) => ({ ids: Int32Array.of(1), text, finished: true, logps: Float32Array.of(-1) })

/** As a step calls it: scopes end between the calls, and what the task keeps must outlive them. */
const inScope = <T>(fn: () => T): T => noGrad(() => tidy(fn as () => never)) as T

test('samples survive a checkpoint, and depend on the seed, the step and the record alone', () => {
  const [first] = inScope(() => task.sample([item], { seed: 1, step: 4 }))
  const [again] = inScope(() => task.sample([item], { seed: 1, step: 4 }))
  const [other] = inScope(() => task.sample([item], { seed: 1, step: 5 }))
  assert.deepEqual(first, again)
  assert.notDeepEqual(
    first!.map((s) => s.text),
    other!.map((s) => s.text),
  )
  assert.deepEqual(
    first!.map((s) => task.restore(JSON.parse(JSON.stringify(task.store(s))))),
    first,
  )
})

test('a reply has the masks before and after, its reward is the term of the mix, and the page gets the points', async () => {
  const group = [sample('[[20,30]]'), sample('[]'), sample('no')]
  const [replies] = inScope(() => task.answer([item], [group])) as PointsReply[][]
  const plan = points.rewards(config)
  const open = await openRewards(config.rewards, plan.tasks)
  const { terms, options } = open.tasks['points']!
  const scores = await scoreGroup(
    terms,
    replies!.map((r) => r.answer),
    options,
  )
  assert.equal(scores[2]!.total, -1)
  const { points: made } = replies![1]!.answer
  assert.equal(made!.turns[0]!.mask, null)
  const placed = replies![0]!.answer.points!
  const gain = maskIou(placed.target, placed.turns[0]!.mask!) - maskIou(placed.target, placed.mask0!)
  assert.ok(Math.abs(scores[0]!.total! - gain - 0.1) <= 0.3 + 1e-9) // gain + 0.1 for the form, up to 0.3 either way for the place
  open.close()
  const shown = shownOf({ shown: task.shown(item, group[0]!, replies![0]) } as never)
  const named = (name: string) => shown.find((s) => s.name === name)
  const dots = shown.flatMap((s) => (s.kind === 'points' ? s.points.map((p) => [s.by, p.x, p.y, p.positive]) : []))
  assert.deepEqual(dots.at(-1), ['policy', 20, 30, false])
  assert.deepEqual([dots[0]![0], dots[0]![3]], ['record', true])
  for (const name of ['mask before the points', 'mask after the points', 'confused region'])
    assert.equal(named(name)?.kind, 'mask', name)
})

test("a step logs the prototype's names, and each answer the places of its points", () => {
  const group = [sample('[[20,30]]'), sample('[]'), sample('no')]
  const [replies] = inScope(() => task.answer([item], [group])) as PointsReply[][]
  const scored = [0.5, 0.1, null].map((total) => ({ total, parts: {}, counted: [] }))
  assert.deepEqual(task.metrics!([{ scores: scored }], 0.25), { loss: 0.25, mean_reward: 0.3, max_reward: 0.5 })
  const [placed, abstains, invalid] = replies!.map((r) => r.metrics)
  assert.deepEqual([placed!['points_per_output'], abstains!['points_per_output']], [1, 0])
  assert.deepEqual([placed!['abstain_rate'], abstains!['abstain_rate'], invalid!['abstain_rate']], [0, 1, undefined])
  assert.deepEqual([placed!['invalid_rate'], invalid!['invalid_rate']], [0, 1])
  assert.equal(placed!['iou_gain'], placed!['final_iou']! - placed!['baseline_iou']!)
})

test('the relative gain is measured against the error-centre clicks of the record', () => {
  const relative = { ...config, points: { ...config.points, reward: { gainKind: 'relative' as const } } }
  const [own] = points.build(openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' }), relative)
  const texts = [sample('[[20,30]]'), sample('[[50,60]]')]
  const [replies] = inScope(() => own!.answer([item], [texts])) as PointsReply[][]
  const [first, second] = replies!.map((r) => r.answer.points!)
  assert.ok(first!.iouOracle! >= maskIou(first!.target, first!.mask0!), `${first!.iouOracle}`)
  assert.equal(second!.iouOracle, first!.iouOracle)
})

test('with the logits of the first mask the relative gain is measured against clicks that have them too', () => {
  const assets = join(import.meta.dirname, '../../../assets/points-miniature')
  const family = openFamily(join(assets, 'policy'), { dtype: 'float32' })
  const sam = new Sam2Predictor(openSam2(join(assets, 'sam2'), { dtype: 'float32' }).model)
  const curves = inScope(() => {
    const make = (previousMask: 'none' | 'logits') => {
      const own = { previousMask, reward: { gainKind: 'relative' as const }, imageSize: 112, wording: 'short' as const }
      return { policy: requireAsking(family), sam, config: resolvePoints(own), maxNewTokens: 4 }
    }
    return Array.from({ length: 6 }, (_, i) => {
      const { record } = makePointScene(11, i)
      const of = (kind: 'none' | 'logits') => {
        const setup = make(kind)
        const opened = openItem(setup, record)
        const [reply] = replyTo(setup, opened, [sample('[]')])
        const start = positiveClicks(setup, record, opened.positive)
        const best = Math.max(opened.iou0, ...errorCentreCurve(setup, opened, start, kind === 'logits'))
        return { measured: sampleOf(setup, opened, reply!).iouOracle, best }
      }
      return { without: of('none'), withLogits: of('logits') }
    })
  })
  for (const { without, withLogits } of curves) {
    assert.equal(without.measured, without.best)
    assert.equal(withLogits.measured, withLogits.best)
  }
  assert.ok(
    curves.some(({ without, withLogits }) => without.best !== withLogits.best),
    'the logits change what clicks reach',
  )
})

test('the best click of the search gains at least what the error centre, a grid of clicks and no click gain', () => {
  const assets = join(import.meta.dirname, '../../../assets/points-miniature')
  const policy = requireAsking(openFamily(join(assets, 'policy'), { dtype: 'float32' }))
  const sam = new Sam2Predictor(openSam2(join(assets, 'sam2'), { dtype: 'float32' }).model)
  const setup = {
    policy,
    sam,
    config: resolvePoints({ imageSize: 112, wording: 'short', maxPoints: 1 }),
    maxNewTokens: 4,
  }
  const found = inScope(() =>
    Array.from({ length: 4 }, (_, i) => {
      const { record } = makePointScene(9001, i)
      const opened = openItem(setup, record)
      const start = positiveClicks(setup, record, opened.positive)
      const places = [8, 24, 40, 56, 72, 88, 104].flatMap((y) =>
        [8, 24, 40, 56, 72, 88, 104].map((x) => [[x, y] as const]),
      )
      const grid = Math.max(...clickedOverlaps(setup, opened, start, places))
      const [centre] = errorCentreCurve(setup, opened, start, false)
      return { best: searchBestClick(setup, opened, start), grid, centre: centre!, none: opened.iou0 }
    }),
  )
  for (const { best, grid, none } of found) assert.ok(best >= grid && best >= none, JSON.stringify(found))
  assert.ok(found.some(({ best, grid }) => best > grid), 'finer steps find better places') // biome-ignore format: one line
  const sum = (of: (f: (typeof found)[number]) => number) => found.reduce((total, f) => total + of(f), 0)
  assert.ok(sum((f) => f.best) > sum((f) => f.centre), 'the error centre is not the best click')
})

test('an item that is asked for again stays open; those that nobody asks for make room, the oldest first', () => {
  const family = requireAsking(openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' }))
  const sam = new Sam2Predictor(openSam2(join(golden, 'sa2va-tiny'), { dtype: 'float32' }).model)
  const setup = { policy: family, sam, config: resolvePoints({ imageSize: 56 }), maxNewTokens: 4 }
  const items = new OpenItems(setup, 2)
  const work = [0, 1, 2, 3].map((i): WorkItem => {
    const { id, image, mask, query } = makePointScene(3, i).record
    return { id, example: { id, image, mask, caption: query, meta: {} }, features: {} }
  })
  const encodes = (...wanted: number[]) => {
    const before = sam.encodes
    inScope(() => void items.all(wanted.map((i) => work[i]!)))
    return sam.encodes - before
  }
  assert.equal(encodes(0, 1), 2)
  assert.equal(encodes(0, 2), 1, 'the first is kept although it is the oldest')
  assert.equal(encodes(1), 1, 'the second had to make room')
  assert.equal(encodes(0, 1, 2, 3), 2, 'a call may need more than are kept')
  assert.equal(encodes(3), 0)
  assert.equal(encodes(0), 1, 'afterwards there are as many as are kept')
  items.close()
})

test('one SAM2 serves the task and its evaluation; neither reads an image more than once', () => {
  const family = openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' })
  const { encodeAll } = Sam2Predictor.prototype
  const read = new Map<Sam2Predictor, number>()
  Sam2Predictor.prototype.encodeAll = function (images) {
    read.set(this, (read.get(this) ?? 0) + images.length)
    return encodeAll.call(this, images)
  }
  try {
    const [own] = points.build(family, config)
    inScope(() => own!.answer([item], [[sample('[[20,30]]'), sample('[[50,60]]')]]))
    const scores = inScope(() => points.evaluator(family, config).score([item]))
    assert.equal(scores.length, 1)
    assert.deepEqual([...read.values()], [2], 'one predictor, once in training and once in evaluation')
  } finally {
    Sam2Predictor.prototype.encodeAll = encodeAll
  }
})

test('showMask tints the pixels of the first mask half red and marks the given point in the image that the policy reads', () => {
  const policy = requireAsking(openFamily(join(golden, 'qwen2_5_vl-tiny'), { dtype: 'float32' }))
  const drawing = join(import.meta.dirname, '../../../assets/points-miniature/sam2')
  const sam = new Sam2Predictor(openSam2(drawing, { dtype: 'float32' }).model)
  const { record } = makePointScene(5, 1)
  const read = (input: PointsInput, image = record.image) =>
    inScope(() => {
      const settings = { policy, sam, config: resolvePoints({ imageSize: 56, ...input }), maxNewTokens: 4 }
      const { features, first, positive } = openItem(settings, { ...record, image })
      const values = Object.values(policy.tensorsOf(features)).flatMap((t) => [...t.to('float32').contiguous().array()])
      return { values, first: first!.mask, point: positive.points[0]! }
    })
  const positivePrompt = 'point'
  const { values, first, point } = read({ positivePrompt })
  const data = record.image.data.slice()
  toDense(first).forEach((on, i) => {
    if (on) for (const c of [0, 1, 2]) data[3 * i + c] = Math.round((data[3 * i + c]! + (c === 0 ? 255 : 0)) / 2)
  })
  const [x, y] = point
  const { width, height } = record.image
  for (let i = 0; i < width * height; i++)
    if (Math.hypot((i % width) - x, Math.floor(i / width) - y) <= Math.max(width, height) / 40)
      data.set([0, 255, 0], 3 * i)
  const shown = read({ showMask: true, positivePrompt }).values
  assert.notDeepEqual(shown, values)
  assert.deepEqual(shown, read({ positivePrompt }, { ...record.image, data }).values)
})

test('settings that cannot work are refused by name', () => {
  const bad = (changes: Partial<PointsRunConfig>, pattern: RegExp) =>
    assert.throws(
      () => points.check({ ...config, ...changes }),
      (e) => e instanceof Mismatch && pattern.test(e.message),
    )
  bad(
    { points: PointsConfig.parse({}), model: 'folder' } as Partial<PointsRunConfig>,
    /points\.sam: expected a SAM2 checkpoint/,
  )
  bad({ train: ['lora', 'mlp1'] }, /train: expected lora/)
  const joint = { ...config.points, mode: 'joint', reward: { gainKind: 'relative' } } as const
  bad({ points: joint }, /reward\.gainKind: expected absolute in mode joint/)
  bad({ points: { ...config.points, turns: 2 } }, /turns: expected 1/)
  for (const mode of ['second-look', 'joint'] as const)
    bad({ points: { ...config.points, mode, showMask: true } }, /showMask: expected false/)
  points.check(config)
})
