import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { stream } from '../core/index.ts'
import { makeScene, sceneExample } from '../data/index.ts'
import { maskFromDense } from '../mask/index.ts'
import { type GroundedFamily, openFamily } from '../models/index.ts'
import { expectNoLeak, noGrad, tidy } from '../tensor/index.ts'
import { clicksOn } from './click-model.ts'
import { nextClick, scoreClicks, simulateClicks } from './clicks.ts'
import { squaredDistance } from './distance.ts'

test('distances equal a search over every outside pixel, the frame around the picture included', () => {
  const random = stream(7, 'distance test')
  for (let round = 0; round < 60; round++) {
    const [height, width] = [1 + random.below(14), 1 + random.below(14)]
    const share = random.uniform()
    const inside = Uint8Array.from({ length: height * width }, () => (random.uniform() < share ? 1 : 0))
    const at = (x: number, y: number) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : inside[y * width + x]!)
    const found = squaredDistance(inside, height, width)
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        let best = at(x, y) === 0 ? 0 : Number.POSITIVE_INFINITY
        for (let v = -1; v <= height; v++) {
          for (let u = -1; u <= width; u++) if (at(u, v) === 0) best = Math.min(best, (u - x) ** 2 + (v - y) ** 2)
        }
        assert.equal(found[y * width + x], best, `${width} x ${height}, ${x} ${y}`)
      }
    }
  }
})

const mask = (rows: string[]) => maskFromDense(Uint8Array.from(rows.join(''), Number), rows.length, rows[0]!.length)

test('the first click is the deepest pixel of the object, later ones lie in the deeper error', () => {
  const target = mask(['0000000', '0111000', '0111000', '0111000', '0000000'])
  assert.deepEqual(nextClick(target, null), { x: 2, y: 2, inside: true })
  assert.equal(nextClick(target, target), null)
  const tooMuch = mask(['0000111', '0111111', '0111111', '0111111', '0000111'])
  assert.deepEqual(nextClick(target, tooMuch), { x: 5, y: 1, inside: false })
  const both = mask(['0000001', '0000000', '0000000', '0000000', '0000000'])
  assert.deepEqual(nextClick(target, both), { x: 2, y: 2, inside: true })
})

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
  const figures = scoreClicks(
    [
      { id: 'a', image: 'a', overlaps: overlaps([0.5, 0.7, 0.86, 0.9]) },
      { id: 'b', image: 'b', overlaps: overlaps([0.1, 0.2, 0.3, 0.3, 0.5]) },
    ],
    { seed: 1 },
  )
  const means = Object.fromEntries(Object.entries(figures).map(([name, { mean }]) => [name, Number(mean.toFixed(9))]))
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
        const first = nextClick(target, null)!
        const once = draw([first])
        const again = draw([first, { x: 0, y: 0, inside: false }])
        release()
        const fresh = clicksOn(family, features, image)
        const without = fresh.draw([first, { x: 0, y: 0, inside: false }])
        fresh.release()
        return [once, again, without]
      }),
    )
  expectNoLeak(run)
  const [once, again, without] = run()
  assert.deepEqual([once!.height, once!.width], [target.height, target.width])
  assert.notDeepEqual(again, without, 'the logits of the first mask count')
})
