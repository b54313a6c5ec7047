import assert from 'node:assert/strict'
import { test } from 'node:test'
import { expectNoLeak, keep, noGrad, randn, tidy } from '../tensor/index.ts'
import { Linear } from './layers.ts'
import { addLora, MergedWeights, withMergedLora } from './lora.ts'
import { Module } from './module.ts'
import { isPacked, type Packing, packedWeight, packInPlace, packsOf } from './packs.ts'

class Pair extends Module implements Packing {
  readonly a = new Linear(3, 4)
  readonly b = new Linear(3, 2)
  packs() {
    return [[this.a, this.b]]
  }
}
class Model extends Module {
  readonly pairs = [new Pair(), new Pair()]
  readonly out = new Linear(3, 3, { bias: false })
}

function filled(): Model {
  const model = new Model()
  for (const { owner, key } of model.slots())
    (owner as Record<string, unknown>)[key] = keep(
      tidy(() => randn([...(owner as Record<string, { shape: number[] }>)[key]!.shape])),
    )
  return model
}
const free = (model: Module) => {
  for (const t of model.parameters().values()) t.dispose()
}
const linearsOf = (model: Model) => [...model.pairs.flatMap((p) => [p.a, p.b]), model.out]
const outputs = (model: Model) => noGrad(() => tidy(() => linearsOf(model).flatMap((l) => l.forward(x).numbers())))
const x = keep(randn([5, 3]))

test('packed in place, the layers give what they gave, and their weights are parts of one tensor', () => {
  const model = filled()
  const before = outputs(model)
  const packs = packsOf(model)
  assert.equal(packs.length, 2)
  for (const pack of packs) {
    assert.equal(isPacked(pack), false)
    const values = pack.flatMap((linear) => linear.weight.numbers())
    packInPlace(pack)
    assert.deepEqual(
      tidy(() => packedWeight(pack).numbers()),
      values,
    )
  }
  assert.deepEqual(outputs(model), before)
  free(model)
})

test('merged weights in reused buffers equal freshly merged ones, keep their address, are packed, and leak nothing', () => {
  const model = filled()
  addLora(model, (path) => !path.includes('.b'), { rank: 2, alpha: 4, seed: 1 })
  const refill = () =>
    noGrad(() => tidy(() => model.pairs.forEach((p) => void p.a.lora_B!.weight.copy_(randn([4, 2])))))
  const weights = () => linearsOf(model).map((l) => l.weight.handle)
  const own = weights()
  expectNoLeak(() => {
    const places = new MergedWeights()
    const seen = [0, 1].map(() => {
      refill()
      const expected = withMergedLora(model, () => outputs(model))
      withMergedLora(
        model,
        () => {
          assert.deepEqual(outputs(model), expected)
          for (const pack of packsOf(model)) tidy(() => assert.deepEqual(packedWeight(pack).shape, [6, 3]))
        },
        places,
      )
      return withMergedLora(model, weights, places)
    })
    assert.deepEqual(seen[0], seen[1])
    assert.deepEqual(weights(), own)
    places.dispose()
  })
  assert.equal(model.pairs[0]!.a.adapter!.enabled, true)
  free(model)
})
