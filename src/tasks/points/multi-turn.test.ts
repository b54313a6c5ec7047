// Several looks: clicks add up, each look is scored under the image it saw, and the trajectory has one reward.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { stream, streamId } from '../../core/index.ts'
import { teacherForce } from '../../llm/index.ts'
import { maskIou } from '../../mask/index.ts'
import { openFamily, type VqaFamily } from '../../models/index.ts'
import { RewardsConfig } from '../../rewards/index.ts'
import { resolveGrpo } from '../../rl/index.ts'
import { openSam2, Sam2Predictor } from '../../sam/index.ts'
import { makePointScene } from '../../scenes/index.ts'
import { noGrad, tidy } from '../../tensor/index.ts'
import { compareItems } from './compare.ts'
import { resolvePoints, rewardOfPoints } from './config.ts'
import {
  askAbout,
  drawOptions,
  openItem,
  type PointItem,
  type PointSetup,
  positiveClicks,
  releaseItem,
  withClicks,
  withContour,
} from './item.ts'
import { askLooks, densitiesOfLooks, replyToLooks, wordsOf } from './multi-turn.ts'
import { OpenItems } from './open-items.ts'
import { points } from './points.ts'
import { type PointText, sampleOf } from './reply.ts'
import { scorePoints } from './reward.ts'
import { PlacePoints } from './task.ts'

const assets = join(import.meta.dirname, '../../../assets/points-miniature')
const sam2 = join(assets, 'sam2')
let setup: PointSetup
let item: PointItem

before(() => {
  const policy = openFamily(join(assets, 'policy'), { dtype: 'float32' }) as VqaFamily
  const sam = new Sam2Predictor(openSam2(sam2, { dtype: 'float32' }).model)
  const config = resolvePoints({ mode: 'second-look', turns: 3, imageSize: 112, wording: 'short', sam: sam2 })
  setup = { policy, sam, config, maxNewTokens: 12 }
  item = openItem(setup, makePointScene(5, 1).record)
})
after(() => releaseItem(setup, item))

const plain = <T>(fn: () => T): T => noGrad(() => tidy(fn as () => never)) as T
const said = (text: string): PointText => {
  const ids = setup.policy.completion(text)
  return { ids, text, finished: true, logps: new Float32Array(ids.length) }
}
const first = '{"negative_points":[[20,30]],"positive_points":[]}'
const second = '{"negative_points":[],"positive_points":[[60,60]]}'
const sideOf = ({ sam }: PointSetup) => sam.inputSize({ width: 112, height: 112 }).width / 112

test('the clicks of all looks add up, in the order they came, and a turn has its price', () => {
  const [reply] = plain(() => replyToLooks(setup, item, [wordsOf([said(first), said(second), said('{"stop":true}')])]))
  const scale = sideOf(setup)
  const start = positiveClicks(setup, item.record, item.positive)
  const clicks = withClicks(withClicks(start, [[20 * scale, 30 * scale]], 0), [[60 * scale, 60 * scale]], 1)
  const [both] = plain(() => setup.sam.draw(item.sam, [clicks], drawOptions(setup, item.record)))
  assert.equal(reply!.turns.length, 3)
  assert.deepEqual(reply!.mask1, both!.mask)
  assert.deepEqual([reply!.turns[1]!.mask, reply!.turns[2]!.mask], [both!.mask, null])
  assert.deepEqual([reply!.answer.negatives.length, reply!.answer.positives.length], [1, 1])
  const weights = rewardOfPoints(setup.config)
  const sample = sampleOf(setup, item, reply!)
  const dearer = scorePoints(sample, { ...weights, turn: weights.turn + 1 })
  assert.ok(
    Math.abs(scorePoints(sample, weights).reward - dearer.reward - 3) < 1e-9,
    'three turns, three times the price',
  )
})

test('an answer that cannot be read ends the trajectory with the reward of an invalid one', () => {
  const [reply] = plain(() => replyToLooks(setup, item, [wordsOf([said(first), said('no idea')])]))
  assert.equal(scorePoints(sampleOf(setup, item, reply!), rewardOfPoints(setup.config)).reward, -1)
})

test('each look is scored under the image it saw; a shorter trajectory is padded at the end', () => {
  const two = wordsOf([said(first), said(second)])
  const one = wordsOf([said('{"stop":true}')])
  const [made] = plain(() => {
    const [d] = densitiesOfLooks(setup, [item], [[two, one]], { temperature: 1, checkpointing: false })
    return [{ width: d!.logps.size(1), logps: d!.logps.numbers() }]
  })
  const direct = plain(() => {
    const [after] = replyToLooks(setup, item, [wordsOf([said(first)])])
    const image = withContour(item.record.image, after!.mask1!)
    const asked = askAbout(setup, { ...item, shown: image, first: null })
    const scored = (prompt: typeof item.prompt, text: string) =>
      teacherForce(setup.policy.model, prompt, [said(text).ids])
        .logProbs(1)
        .logps.numbers()
    return {
      both: [...scored(item.prompt, first), ...scored(asked.prompt, second)],
      unseen: scored(item.prompt, second),
    }
  })
  assert.equal(made!.width, two.ids.length)
  direct.both.forEach((want, t) => {
    assert.ok(Math.abs(made!.logps[t]! - want) <= 1e-4, `token ${t}: ${made!.logps[t]} against ${want}`)
  })
  const from = said(first).ids.length
  assert.ok(
    direct.unseen.some((v, t) => Math.abs(v - direct.both[from + t]!) > 1e-4),
    'the second look saw another image',
  )
  assert.ok(
    made!.logps.slice(made!.width + one.ids.length).every((v) => v === 0),
    'padding',
  )
})

test('sampled trajectories are those of the task, survive a checkpoint, and other modes refuse to look again', () => {
  const random = (b: number, k: number, look: number) => stream(streamId.test, 'looks', b, k, look)
  const [words] = plain(() => askLooks(setup, [item], { rl: resolveGrpo({}), samples: 2, random }))
  assert.equal(words!.length, 2)
  const rl = resolveGrpo({ numGenerations: 2, maxCompletionLength: 12, beta: 0 })
  const common = { seed: 1, rl, checkpointing: false, train: ['lora'], rewards: RewardsConfig.parse({}) }
  const [task] = points.build(setup.policy, { ...common, points: setup.config })
  const stored = wordsOf([said(first), said(second)])
  assert.deepEqual(task!.restore(JSON.parse(JSON.stringify(task!.store(stored)))), stored)
  assert.throws(() => resolvePoints({ turns: 2 }), /turns: expected 1: only in mode second-look/)
})

/** A task that looks up to three times; whatever the model writes is read as `text`. */
function reading(text: string) {
  const { policy } = setup
  const own = policy.tokenizer as unknown as Record<string | symbol, unknown>
  const tokenizer = new Proxy(own, {
    get: (_, key) => (key === 'decode' ? () => text : typeof own[key] === 'function' ? own[key].bind(own) : own[key]),
  })
  const deaf: PointSetup = { ...setup, policy: Object.create(policy, { tokenizer: { value: tokenizer } }) }
  const rl = resolveGrpo({ numGenerations: 2, maxCompletionLength: 12, beta: 0, temperature: 1000 })
  const common = { seed: 1, rl, checkpointing: false, train: ['lora'], rewards: RewardsConfig.parse({}) }
  const task = new PlacePoints(deaf, common, new OpenItems(deaf, 4))
  const { id, image, mask, query } = makePointScene(5, 1).record
  const work = { id, example: { id, image, mask, caption: query, meta: {} }, features: {} }
  return plain(() => task.sample([work], { seed: 1, step: 0 }))[0]!
}

test('every look of a trajectory has its own random numbers', () => {
  for (const { looks } of reading(first)) {
    assert.equal(looks!.length, 3)
    // so hot that the words follow from the random numbers alone
    const texts = looks!.map(({ ids }) => ids.join())
    assert.equal(new Set(texts).size, 3, texts.join(' | '))
  }
})

test('an answer that stops, or that cannot be read, is the last of its trajectory', () => {
  for (const text of ['{"stop":true}', '{"negative_points":[],"positive_points":[]}', 'no idea'])
    assert.deepEqual(
      reading(text).map(({ looks }) => looks!.length),
      [1, 1],
      text,
    )
})

/** The policy, whose answers are read as these texts in turn. */
function saying(texts: string[]): VqaFamily {
  const { tokenizer } = setup.policy
  const replaced = <T extends object>(of: T, name: string, value: unknown): T =>
    new Proxy(of, {
      get(target, key) {
        if (key === name) return value
        const found = Reflect.get(target, key, target)
        return typeof found === 'function' ? found.bind(target) : found
      },
    })
  const decode = (ids: Int32Array, options?: { skipSpecial?: boolean }) =>
    options?.skipSpecial ? texts.shift()! : tokenizer.decode(ids, options)
  return replaced(setup.policy, 'tokenizer', replaced(tokenizer, 'decode', decode))
}

test('a comparison gives a trajectory that ends in an invalid answer the overlap before its clicks', () => {
  const others = { image: '', random: 0, heuristic: 0, errorCentre: [], errorCentreLogits: [], bestClick: 0 }
  const compared = (...texts: string[]) => {
    const known = new Map([[item.record.id, others]])
    return plain(() => compareItems({ ...setup, policy: saying(texts) }, [item], 1, known)[0]!)
  }
  const composed = { ...item, record: { ...item.record, unit: 'the cup' } }
  const policy = saying([first, '{"stop":true}'])
  assert.equal(plain(() => compareItems({ ...setup, policy }, [composed], 1)[0]!).image, 'the cup')
  const [good, bad] = [compared(first, '{"stop":true}'), compared(first, 'no idea')]
  const drawn = plain(() => replyToLooks(setup, item, [wordsOf([said(first)])])[0]!.mask1!)
  assert.deepEqual([good.valid, good.policy], [true, maskIou(item.record.mask, drawn)])
  assert.notEqual(good.policy, good.none)
  assert.deepEqual([bad.valid, bad.policy, bad.policyAreas], [false, good.none, good.noneAreas])
})
