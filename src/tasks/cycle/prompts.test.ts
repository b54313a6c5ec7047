import assert from 'node:assert/strict'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { toyRun } from '../../../tests/support/runs.ts'
import { maskArea } from '../../mask/index.ts'
import { openFamily } from '../../models/index.ts'
import { makeScene, sceneExample } from '../../scenes/index.ts'
import { expectNoLeak, keep } from '../../tensor/index.ts'
import { type Cycle, requireGrounded } from './config.ts'
import { askSome, describeAll, type Found, segmentAll } from './prompts.ts'
import { segAt } from './score-actions.ts'

const model = fileURLToPath(new URL('../../../assets/miniature', import.meta.url))
const family = requireGrounded(openFamily(model, { dtype: 'float32' }))
const context: Cycle = { family, config: toyRun(model, '', { rl: { maxCompletionLength: 16 } }) }
const scenes = [0, 1].map((i) => sceneExample(makeScene(5, i)))
const features = family.encode(scenes.map((s) => family.prepare(s.image)))
for (const f of features) for (const t of Object.values(family.tensorsOf(f))) keep(t)
after(() => {
  for (const f of features) for (const t of Object.values(family.tensorsOf(f))) t.dispose()
  for (const t of family.module.parameters().values()) t.dispose()
})

test('phrases of several images, found together, give the masks and words of each alone', () => {
  const phrases = ['the red circle', 'the large blue square on the left', 'a star'].flatMap((caption) =>
    features.map((f) => ({ features: f, caption })),
  )
  const together = segmentAll(context, [...phrases, phrases[0]!])
  const alone = phrases.flatMap((p) => segmentAll(context, [p]))
  const found = (all: Found[]) => all.map(({ mask, text, segs }) => ({ mask, text, segs }))
  assert.deepEqual(found(together.slice(0, -1)), found(alone))
  for (const [i, { confidence }] of alone.entries())
    for (const key of ['iou', 'object'] as const) {
      const [one, many] = [confidence![key], together[i]!.confidence![key]]
      assert.ok(Math.abs(one - many) < 1e-5, `${key} of phrase ${i}: ${one} alone, ${many} with others`)
    }
  assert.deepEqual(together.at(-1), together[0])
  assert.ok(new Set(alone.map((f) => maskArea(f.mask!))).size > 2, 'the phrases mean different things')
})

test('more phrases than are drawn in one pass: each has its own mask', () => {
  const captions = Array.from({ length: 17 }, (_, i) => `the ${i} red circle`)
  const phrases = captions.map((caption) => ({ features: features[0]!, caption }))
  const together = segmentAll(context, phrases)
  for (const i of [15, 16])
    assert.deepEqual(together[i]!.mask, segmentAll(context, [phrases[i]!])[0]!.mask, `phrase ${i}`)
})

test('regions of several images, described together, get the words of each alone; an empty one gets none', () => {
  const { mask } = scenes[0]!
  const none = { ...mask, counts: Uint32Array.of(mask.height * mask.width) }
  const found = segmentAll(context, [{ features: features[0]!, caption: 'a star' }])[0]!.mask!
  const regions = [
    { features: features[0]!, mask },
    { features: features[1]!, mask: scenes[1]!.mask },
    { features: features[0]!, mask: found },
  ]
  const alone = regions.flatMap((r) => describeAll(context, [r]))
  assert.deepEqual(describeAll(context, [...regions, { features: features[0]!, mask: none }]), [...alone, null])
})

test('what cannot be asked about has no answer, and the answers of the others stay in their places', () => {
  const odd = (n: number) => n % 2 === 1
  assert.deepEqual(
    askSome([0, 1, 2, 3, 5], odd, (some) => some.map((n) => `${n} of ${some.length}`)),
    [null, '1 of 3', null, '3 of 3', '5 of 3'],
  )
})

test('a [SEG] acts when a token follows it: the last token of an answer was not read back', () => {
  const { segId } = family
  assert.equal(segAt(context, Int32Array.of(3, segId, 4)), 1)
  assert.equal(segAt(context, Int32Array.of(segId, segId, 4)), 0)
  assert.equal(segAt(context, Int32Array.of(3, segId)), -1)
  assert.equal(segAt(context, Int32Array.of(3, 4)), -1)
})

test('reading leaves no tensor behind', () => {
  expectNoLeak(() => void segmentAll(context, [{ features: features[0]!, caption: 'a star' }]))
})
