import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mergeLora } from '../../tests/support/merge-lora.ts'
import {
  arange,
  type DType,
  expectNoLeak,
  keep,
  manualSeed,
  memory,
  noGrad,
  type Tensor,
  tensor,
  tidy,
  tidyNoGrad,
  zeros,
} from '../tensor/index.ts'
import {
  addLora,
  CastCopies,
  cast,
  initRandom,
  KVCache,
  LayerNorm,
  LayerNorm2d,
  Linear,
  linears,
  Module,
  RMSNorm,
  Rope,
  replaceTensor,
  rotate,
  selectSlots,
  tensorAt,
  trainOnly,
  withMergedLora,
  withWeights,
} from './index.ts'

const wave = (n: number, step = 1) => Float32Array.from({ length: n }, (_, i) => Math.sin(1 + i * step))
const near = (a: number, b: number, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${a} against ${b}`)

class Net extends Module {
  readonly layers = [new Linear(6, 5), null, new Linear(5, 4, { bias: false })]
  readonly norm = new RMSNorm(4, 1e-6)
}

function net(): Net {
  const model = new Net()
  initRandom(model, { seed: 1, std: 0.3 })
  return model
}

function free(model: Module): void {
  for (const t of model.parameters().values()) t.dispose()
}

test('names follow the fields, lists add their index and weightless entries are skipped', () => {
  const model = new Net()
  assert.deepEqual(model.names(), ['layers.0.weight', 'layers.0.bias', 'layers.2.weight', 'norm.weight'])
  assert.deepEqual(model.layers[0]!.weight.shape, [5, 6])
  assert.equal(model.layers[0]!.weight.device, 'meta')
  free(model)
})

test('a pattern that selects nothing is an error; trained weights become float32', () => {
  const model = new Net()
  initRandom(model, { seed: 1, std: 0.3, dtype: 'bfloat16' })
  assert.throws(
    () => selectSlots(model, [/^layers\./, /^nothing/]),
    /\/\^nothing\/: expected a pattern that matches a parameter/,
  )
  const chosen = trainOnly(model, [/^norm\./])
  assert.deepEqual(
    chosen.map((s) => s.name),
    ['norm.weight'],
  )
  assert.deepEqual([model.norm.weight.dtype, model.norm.weight.requiresGrad], ['float32', true])
  assert.deepEqual([model.layers[0]!.weight.dtype, model.layers[0]!.weight.requiresGrad], ['bfloat16', false])
  free(model)
})

test('other weights are used during a call and restored after it, also when the function throws', () => {
  const model = net()
  const slots = selectSlots(model, [/^norm\./])
  const other = tensor([2, 2, 2, 2])
  const inside = withWeights(slots, new Map([['norm.weight', other]]), () => model.norm.weight.numbers())
  assert.deepEqual(inside, [2, 2, 2, 2])
  assert.throws(
    () =>
      withWeights(slots, new Map([['norm.weight', other]]), () => {
        throw new Error('x')
      }),
    /x/,
  )
  assert.throws(() => withWeights(slots, new Map(), () => 0), /norm\.weight: expected a tensor/)
  assert.deepEqual(model.norm.weight.numbers(), [1, 1, 1, 1])
  other.dispose()
  free(model)
})

test('copies in a narrower dtype are read where activations have it, during the call alone', () => {
  const model = net()
  const weights = model.slots().map(tensorAt)
  const copies = new CastCopies(weights, 'bfloat16')
  const x = (dtype: DType) => tensor(wave(12), [2, 6]).to(dtype)
  const outs = () =>
    (['bfloat16', 'float32', 'float64'] as const).map((dtype) =>
      noGrad(() => tidy(() => model.layers[0]!.forward(x(dtype)).numbers())),
    )
  const isCopy = () => tidy(() => new Set([0, 1].map(() => cast(weights[0]!, x('bfloat16')).handle)).size === 1)
  for (const size of [1, 2]) {
    noGrad(() => tidy(() => void weights[0]!.mul_(size)))
    const want = outs()
    assert.deepEqual([isCopy(), copies.during(weights, isCopy), isCopy()], [false, true, false])
    assert.deepEqual(copies.during(weights, outs), want)
  }
  assert.throws(() => copies.during(weights, () => assert.fail('x')), /x/)
  assert.equal(isCopy(), false)
  const others = tidyNoGrad(() => weights.map((w) => keep(w.clone())))
  assert.equal(copies.during(others, isCopy), false, 'other weights are cast as ever')
  for (const t of others) t.dispose()
  copies.dispose()
  free(model)
})

test('layers of one shape start from different adapters, the same whatever else is adapted', () => {
  class Alike extends Module {
    readonly layers = [new Linear(5, 4), new Linear(5, 4)]
  }
  const factors = (targets: (path: string) => boolean) => {
    const model = new Alike()
    initRandom(model, { seed: 1 })
    addLora(model, targets, { rank: 2, alpha: 2, seed: 4 })
    const found = model.layers.map(({ lora_A }) => lora_A?.weight.numbers())
    free(model)
    return found
  }
  const [first, second] = factors(() => true)
  assert.notDeepEqual(first, second)
  assert.deepEqual(factors((path) => path === 'layers.1')[1], second)
})

test('LoRA adds (alpha / r) B A x, starts as nothing, and merges into the weight', () => {
  const model = net()
  const linear = model.layers[2] as Linear
  const x = tensor(wave(10), [2, 5])
  const run = () => tidy(() => linear.forward(x).numbers())
  const plain = run()
  const state = addLora(model, (path) => path === 'layers.2', { rank: 2, alpha: 6, seed: 4 })
  assert.equal(state.scale, 3)
  assert.deepEqual(run(), plain)
  assert.deepEqual(
    linears(model).map(([path, l]) => [path, l.lora_A !== undefined]),
    [
      ['layers.0', false],
      ['layers.2', true],
    ],
  )
  tidy(() => void linear.lora_B!.weight.copy_(tensor(wave(8, 0.7), [4, 2])) as never)
  const [a, b, w, input] = [linear.lora_A!.weight, linear.lora_B!.weight, linear.weight, x].map((t: Tensor) =>
    t.numbers(),
  ) as [number[], number[], number[], number[]]
  const adapted = run()
  for (let r = 0; r < 2; r++)
    for (let o = 0; o < 4; o++) {
      let y = 0
      for (let i = 0; i < 5; i++) {
        let delta = 0
        for (let k = 0; k < 2; k++) delta += b[o * 2 + k]! * a[k * 5 + i]!
        y += (w[o * 5 + i]! + 3 * delta) * input[r * 5 + i]!
      }
      near(adapted[r * 4 + o]!, y)
    }
  assert.ok(a.every((v) => Math.abs(v) <= 1 / Math.sqrt(5)))
  assert.equal(mergeLora(model), 1)
  run().forEach((v, i) => {
    near(v, adapted[i]!)
  })
  assert.deepEqual(model.names(), ['layers.0.weight', 'layers.0.bias', 'layers.2.weight', 'norm.weight'])
  assert.throws(() => addLora(model, () => false, { rank: 2, alpha: 6, seed: 4 }), /expected at least one linear layer/)
  x.dispose()
  free(model)
})

test('norms equal their definitions', () => {
  const x = wave(12).map((v) => 3 * v + 1)
  const input = tensor(x, [3, 4])
  const weight = [1, 2, -1, 0.5]
  const rms = new RMSNorm(4, 1e-3)
  const layer = new LayerNorm(4, 1e-3)
  for (const slot of [...rms.slots(), ...layer.slots()]) replaceTensor(slot, tensor(weight))
  const [r, l] = tidy(() => [rms.forward(input).numbers(), layer.forward(input).numbers()]) as [number[], number[]]
  for (let row = 0; row < 3; row++) {
    const v = [...x.slice(row * 4, row * 4 + 4)]
    const mean = v.reduce((a, b) => a + b) / 4
    const square = v.reduce((a, b) => a + b * b, 0) / 4
    v.forEach((value, i) => {
      near(r[row * 4 + i]!, (value / Math.sqrt(square + 1e-3)) * weight[i]!)
      near(l[row * 4 + i]!, ((value - mean) / Math.sqrt(square - mean * mean + 1e-3)) * weight[i]! + weight[i]!, 2e-5)
    })
  }
  input.dispose()
  free(rms)
  free(layer)
})

test('the norm over channels treats each pixel alone', () => {
  const norm = new LayerNorm2d(4)
  for (const slot of norm.slots()) replaceTensor(slot, tensor(slot.name === 'weight' ? [1, 2, 3, 4] : [0, 0, 1, 0]))
  const x = wave(24)
  const out = tidy(() => norm.forward(tensor(x, [1, 4, 2, 3])).numbers())
  for (let p = 0; p < 6; p++) {
    const v = [0, 1, 2, 3].map((c) => x[c * 6 + p]!)
    const mean = v.reduce((a, b) => a + b) / 4
    const spread = Math.sqrt(v.reduce((a, b) => a + (b - mean) ** 2, 0) / 4 + 1e-6)
    v.forEach((value, c) => {
      near(out[c * 6 + p]!, ((value - mean) / spread) * (c + 1) + (c === 2 ? 1 : 0), 2e-5)
    })
  }
  free(norm)
})

test('rotation turns the pair (k, k + D/2) by position / theta^(2k/D), and keeps products of equal distance', () => {
  const rope = new Rope(8, 100)
  const q = wave(8)
  const at = (position: number) =>
    tidy(() => {
      const x = tensor(q, [1, 1, 1, 8])
      const table = rope.table(tensor(BigInt64Array.of(BigInt(position))).unsqueeze(0), x)
      return rotate(x, { cos: table.cos.unsqueeze(1), sin: table.sin.unsqueeze(1) }).numbers()
    })
  const turned = at(5)
  for (let k = 0; k < 4; k++) {
    const angle = 5 / 100 ** ((2 * k) / 8)
    near(turned[k]!, q[k]! * Math.cos(angle) - q[k + 4]! * Math.sin(angle))
    near(turned[k + 4]!, q[k + 4]! * Math.cos(angle) + q[k]! * Math.sin(angle))
  }
  const dot = (a: number[], b: number[]) => a.reduce((sum, v, i) => sum + v * b[i]!, 0)
  near(dot(at(9), at(4)), dot(at(105), at(100)), 1e-4)
  assert.deepEqual(at(0), [...q])
})

test('the cache holds what was put at its columns, and rows can be repeated', () => {
  expectNoLeak(() => {
    const like = tensor([0])
    const cache = new KVCache(2, { batch: 2, heads: 1, capacity: 4, dim: 2 }, like)
    tidy(() => {
      const key = tensor(wave(8), [2, 1, 2, 2])
      cache.put(1, tensor(BigInt64Array.of(1n, 2n)), key, key)
      assert.deepEqual(cache.keys[1]!.slice({ dim: 2, start: 1, end: 3 }).numbers(), key.numbers())
      assert.equal(cache.keys[0]!.abs().sum().item(), 0)
    })
    const second = tidy(() => cache.values[1]!.select(0, 1).numbers())
    tidy(() => cache.select(tensor(BigInt64Array.of(1n, 1n, 0n))))
    assert.deepEqual(cache.values[1]!.shape, [3, 1, 4, 2])
    assert.deepEqual(
      tidy(() => cache.values[1]!.select(0, 1).numbers()),
      second,
    )
    cache.dispose()
    like.dispose()
  })
})

test('random weights depend on seed and name alone', () => {
  const [a, b] = [net(), net()]
  assert.deepEqual(a.layers[0]!.weight.array(), b.layers[0]!.weight.array())
  assert.notDeepEqual(a.layers[0]!.weight.numbers().slice(0, 4), a.layers[2]!.weight.numbers().slice(0, 4))
  free(a)
  free(b)
})

test('rotary tables of equal shape are one, however many models there are', () => {
  tidy(() => {
    const positions = arange(0, 4, { dtype: 'int64' }).unsqueeze(0)
    const like = zeros([1])
    const make = () => tidy(() => void new Rope(24, 12345).table(positions, like))
    make()
    const before = memory().tensors
    for (let i = 0; i < 5; i++) make()
    assert.equal(memory().tensors, before)
  })
})

test('adapters that are off take no part in merged weights, and stay off', () => {
  const model = net()
  const linear = model.layers[2] as Linear
  const x = tensor(wave(10), [2, 5])
  const run = () => tidy(() => linear.forward(x).numbers())
  const plain = run()
  const state = addLora(model, (path) => path === 'layers.2', { rank: 2, alpha: 6, seed: 4 })
  tidy(() => void linear.lora_B!.weight.copy_(tensor(wave(8, 0.7), [4, 2])) as never)
  const adapted = run()
  assert.notDeepEqual(adapted, plain)
  withMergedLora(model, run).forEach((v, i) => {
    near(v, adapted[i]!)
  })
  state.enabled = false
  assert.deepEqual(withMergedLora(model, run), plain)
  assert.equal(state.enabled, false)
  x.dispose()
  free(model)
})

test('dropout leaves out single inputs of the adapter and nothing of the base; what is kept is scaled by 1 / (1 - p)', () => {
  const [rows, inputs, p] = [20_000, 4, 0.25]
  manualSeed(3)
  const linear = new Linear(inputs, 1, { bias: false })
  linear.weight = keep(tensor([1, 2, 3, 4], [1, inputs]))
  const state = addLora(new (class extends Module {
    readonly layer = linear
  })(), () => true, { rank: 1, alpha: 2, seed: 1, dropout: p }) // biome-ignore format: one line
  tidy(() => noGrad(() => {
    linear.lora_A!.weight.fill_(1)
    linear.lora_B!.weight.fill_(1)
  })) // biome-ignore format: one line
  const outputs = () =>
    tidy(() => linear.forward(tensor(new Float32Array(rows * inputs).fill(1), [rows, inputs])).numbers())
  const counts = new Array<number>(inputs + 1).fill(0)
  for (const y of outputs()) {
    const kept = ((y - 10) / 2) * (1 - p) // B A x = sum of what is kept / (1 - p), times alpha / r = 2
    near(kept, Math.round(kept))
    counts[Math.round(kept)]!++
  }
  const choose = [1, 4, 6, 4, 1]
  for (const [kept, count] of counts.entries()) {
    const share = choose[kept]! * (1 - p) ** kept * p ** (inputs - kept) // binomial
    near(count / rows, share, 6 * Math.sqrt((share * (1 - share)) / rows))
  }
  state.dropout = 0
  assert.deepEqual(new Set(outputs()), new Set([18]))
})
