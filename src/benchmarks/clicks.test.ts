import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { errorCentre, maskFromDense } from '../mask/index.ts'
import { type GroundedFamily, openFamily } from '../models/index.ts'
import { makeScene, sceneExample } from '../scenes/index.ts'
import { expectNoLeak, noGrad, tidy } from '../tensor/index.ts'
import { clicksOn } from './click-model.ts'
import { scoreClicks, simulateClicks } from './clicks.ts'

const mask = (rows: string[]) => maskFromDense(Uint8Array.from(rows.join(''), Number), rows.length, rows[0]!.length)

test('a mask that is right needs no more clicks and keeps its overlap', () => {
  const target = mask(['010', '111'])
  const asked: number[] = []
  const draw = (clicks: readonly unknown[]) => {
    asked.push(clicks.length)
    return clicks.length < 2 ? mask(['010', '010']) : target
  }
  assert.deepEqual(simulateClicks(target, draw, 5), [0.5, 1, 1, 1, 1])
  assert.deepEqual(asked, [1, 2])
})

test('mIoU after clicks, and the number of clicks with 20 where the goal is never reached', () => {
  const overlaps = (values: number[]) => [
    ...values,
    ...Array.from({ length: 20 - values.length }, () => values.at(-1)!),
  ]
  const metrics = scoreClicks(
    [
      { id: 'a', image: 'a', overlaps: overlaps([0.5, 0.7, 0.86, 0.9]) },
      { id: 'b', image: 'b', overlaps: overlaps([0.1, 0.2, 0.3, 0.3, 0.5]) },
    ],
    { seed: 1 },
  )
  const means = Object.fromEntries(Object.entries(metrics).map(([name, { mean }]) => [name, Number(mean.toFixed(9))]))
  assert.deepEqual(means, { 'mIoU@1': 0.3, 'mIoU@3': 0.58, 'mIoU@5': 0.7, 'NoC@85': 11.5, 'NoC@90': 12 })
})

const model = fileURLToPath(new URL('../../assets/miniature', import.meta.url))
const family = openFamily(model, { dtype: 'float32' }) as GroundedFamily
after(() => {
  for (const t of family.module.parameters().values()) t.dispose()
})

test('SAM2 draws from clicks, the mask before goes in again, and nothing is left behind', () => {
  const { image, mask: target } = sceneExample(makeScene(5, 1))
  const run = () =>
    noGrad(() =>
      tidy(() => {
        const features = family.encode([family.prepare(image)])[0]!
        const { draw, release } = clicksOn(family, features, image)
        const outside = { point: [0, 0], label: 0, d2: 1 } as const
        const first = errorCentre(target, null)!
        const once = draw([first])
        const again = draw([first, outside])
        release()
        const fresh = clicksOn(family, features, image)
        const without = fresh.draw([first, outside])
        fresh.release()
        return [once, again, without]
      }),
    )
  expectNoLeak(run)
  const [once, again, without] = run()
  assert.deepEqual([once!.height, once!.width], [target.height, target.width])
  assert.notDeepEqual(again, without, 'the logits of the first mask count')
})
