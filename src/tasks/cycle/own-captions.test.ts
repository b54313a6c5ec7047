import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { toyRun } from '../../../tests/support/runs.ts'
import { packageRoot } from '../../core/index.ts'
import { openSource } from '../../data/index.ts'
import { maskIou } from '../../mask/index.ts'
import { openFamily } from '../../models/index.ts'
import { tidyNoGrad } from '../../tensor/index.ts'
import { requireGrounded } from './config.ts'
import { ownCaptions } from './own-captions.ts'
import { describeAll, segmentAll } from './prompts.ts'

test('own captions lead back to their regions better than greedy ones, and are the same whatever the seed of the run', async () => {
  const model = join(packageRoot(), 'assets', 'miniature')
  const family = requireGrounded(openFamily(model, { dtype: 'float32' }))
  const source = await openSource('scenes:6')
  const examples = await Promise.all(Array.from({ length: 6 }, (_, i) => source.get(i)))
  await source.close()
  const settings = (seed: number) => toyRun(model, '', { seed, rl: { maxCompletionLength: 24, numGenerations: 8 } })
  tidyNoGrad(() => {
    const cycle = { family, config: settings(1) }
    const features = family.encode(examples.map(({ image }) => family.prepare(image, {})))
    const items = examples.map((example, i) => ({ id: example.id, example, features: features[i]! }))
    const found = (captions: readonly (string | null)[]) => {
      const phrases = captions.map((caption, i) => ({ features: features[i]!, caption: caption! }))
      const overlaps = segmentAll(cycle, phrases).map(({ mask }, i) => (mask ? maskIou(mask, examples[i]!.mask) : 0))
      return overlaps.reduce((a, b) => a + b)
    }
    const own = ownCaptions(cycle, items)
    const greedy = describeAll(
      cycle,
      examples.map(({ mask }, i) => ({ features: features[i]!, mask })),
    )
    assert.ok(found(own) > found(greedy) + 0.2, `${found(own)} against ${found(greedy)}`)
    assert.deepEqual(ownCaptions({ family, config: settings(2) }, items), own)
  })
})
