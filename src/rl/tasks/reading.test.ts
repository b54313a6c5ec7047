import assert from 'node:assert/strict'
import test, { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { freeFeatures } from '../../../tests/support/sa2va.ts'
import { makeScene, sceneExample } from '../../data/index.ts'
import { maskArea } from '../../mask/index.ts'
import { openSa2VA, prepareImage } from '../../models/index.ts'
import { expectNoLeak } from '../../tensor/index.ts'
import { resolveRun } from '../run-config.ts'
import { describeAll, segmentAll } from './reading.ts'
import type { TaskContext } from './task.ts'

const model = fileURLToPath(new URL('../../../assets/miniature', import.meta.url))
const loaded = openSa2VA(model, { dtype: 'float32' })
const config = resolveRun({ model, dataPath: 'scenes:8', rl: { maxCompletionLength: 16 } })
const context: TaskContext = { learner: { loaded }, config, actionScale: 1 }
const scenes = [0, 1].map((i) => sceneExample(makeScene(5, i)))
const features = scenes.map((s) => loaded.model.encode(prepareImage(s.image, loaded.cfg)))
after(() => {
  for (const f of features) freeFeatures(f)
  for (const t of loaded.model.parameters().values()) t.dispose()
})

test('phrases of several images, found together, give the masks and words of each alone', () => {
  const phrases = ['the red circle', 'the large blue square on the left', 'a star'].flatMap((caption) =>
    features.map((f) => ({ features: f, caption })),
  )
  const together = segmentAll(context, [...phrases, phrases[0]!])
  const alone = phrases.flatMap((p) => segmentAll(context, [p]))
  assert.deepEqual(together.slice(0, -1), alone)
  assert.deepEqual(together.at(-1), together[0])
  assert.ok(new Set(alone.map((f) => maskArea(f.mask!))).size > 2, 'the phrases mean different things')
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

test('reading leaves no tensor behind', () => {
  expectNoLeak(() => void segmentAll(context, [{ features: features[0]!, caption: 'a star' }]))
})
