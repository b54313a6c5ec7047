import assert from 'node:assert/strict'
import test from 'node:test'
import { layerForward, layerInput, layerLoss, layerSize, layerWeights } from '../../bench/engine-layer.ts'
import { backward, expectNoLeak, tidy } from '../../src/tensor/index.ts'

// bench/engine-layer.py with Debian's torch 1.13.1, one thread: loss, then per weight the sum of grad * cos(0.11 i) and of |grad|
const expectedLoss = 0.5066688656806946
const expectedGrads = {
  norm1: [-0.00051533052266523, 0.0034692507160798414],
  q: [-0.00017528589891256118, 0.05509699316489147],
  qBias: [0.00027144132047675747, 0.0021288777716108598],
  k: [-3.103206995852829e-5, 0.03890339631420403],
  kBias: [2.448098181426057e-5, 0.00018647250271897065],
  v: [-0.0005768732381039657, 0.6145665695237312],
  vBias: [0.00350075203338636, 0.03885970474220812],
  o: [0.04183963250589208, 6.385203882906808],
  norm2: [-0.0014838186624611658, 0.017256696926779114],
  gate: [0.0006806934982002141, 1.5246864145006285],
  up: [-0.00044065019197148624, 1.5046502578763459],
  down: [-0.025525560983770082, 8.383586151027998],
}

const size = layerSize(32)
const weights = layerWeights(size)
const input = layerInput(size, 2, 6)

function step(): { loss: number; grads: Record<string, number[]> } {
  return expectNoLeak(() =>
    tidy(() => {
      const loss = layerLoss(layerForward(weights, size, input))
      backward(loss)
      const grads = Object.entries(weights).map(([name, w]) => [name, w.grad()!.numbers()] as const)
      for (const w of Object.values(weights)) w.setGrad(null)
      return { loss: loss.item(), grads: Object.fromEntries(grads) }
    }),
  )
}

test('a decoder layer has the loss and the gradients of PyTorch', () => {
  const { loss, grads } = step()
  assert.ok(Math.abs(loss - expectedLoss) < 1e-6, `loss ${loss}`)
  for (const [name, [weighted, absolute]] of Object.entries(expectedGrads)) {
    const g = grads[name]!
    const sum = g.reduce((a, v, i) => a + v * Math.cos(0.11 * i), 0)
    const total = g.reduce((a, v) => a + Math.abs(v), 0)
    assert.ok(Math.abs(sum - weighted!) < 1e-5 * absolute!, `${name}: ${sum}, expected ${weighted}`)
    assert.ok(Math.abs(total - absolute!) < 1e-5 * absolute!, `${name}: ${total}, expected ${absolute}`)
  }
})

test('the same step again gives the same bits', () => {
  assert.deepEqual(step(), step())
})
