import assert from 'node:assert/strict'
import { test } from 'node:test'
import { backward, type DType, expectNoLeak, keep, noGrad, randn, type Tensor, tensor, tidy } from '../tensor/index.ts'
import {
  addLora,
  initRandom,
  Linear,
  MergedWeights,
  Module,
  type Packing,
  packedWeight,
  RMSNorm,
  storeQuantized,
  trainOnly,
  widenWith,
  withMergedLora,
  withProduct,
} from './index.ts'
import { dequantize, nf4Values, type QuantizedForm, quantize } from './quantized.ts'

const columns = 80
const forms = ['int8', 'nf4'] as const

class Net extends Module {
  readonly layer = new Linear(columns, 48)
  readonly norm = new RMSNorm(48, 1e-6)
}

// The values of NF4 are shared by all matrices and stay.
for (const dtype of ['float32', 'bfloat16'] as const)
  tidy(() => dequantize(quantize(tensor(new Float32Array(64), [1, 64]), 'nf4', dtype), 64))

/** Rows of very different size: a scale of another row, or of a column, would show. Their last block of 64 columns is short. */
function uneven(): Net {
  const net = new Net()
  initRandom(net, { seed: 3, std: 1 })
  const sizes = Float32Array.from({ length: 48 }, (_, i) => 10 ** ((i % 7) - 3))
  tidy(() => void net.layer.weight.mul_(tensor(sizes, [48, 1])))
  return net
}

function free(model: Module): void {
  for (const t of model.parameters().values()) t.dispose()
}

/** The same net twice: its layer quantized, and with what the numbers stand for as a plain weight. */
function twice(form: QuantizedForm, dtype: DType): [Net, Net] {
  const [quantized, plain] = [uneven(), uneven()]
  storeQuantized(quantized.layer, form, dtype)
  const { weight: numbers, weight_scale: scale } = quantized.layer
  plain.layer.weight.dispose()
  plain.layer.weight = keep(dequantize({ numbers, scale: scale! }, columns))
  return [quantized, plain]
}

const input = (rows = 5) =>
  tensor(
    Float32Array.from({ length: rows * columns }, (_, i) => Math.sin(1 + i * 0.7)),
    [rows, columns],
  )

for (const dtype of ['float32', 'bfloat16'] as const)
  test(`a matrix in 8 bit is within half a step of its row's own scale, scales in ${dtype}`, () =>
    expectNoLeak(() => {
      const net = uneven()
      tidy(() => {
        const { weight } = net.layer
        weight.select(0, 5).zero_()
        const { numbers, scale } = quantize(weight, 'int8', dtype)
        assert.deepEqual([numbers.dtype, scale.dtype, scale.shape], ['int8', dtype, [48, 1]])
        const [w, q, s] = [weight.numbers(), numbers.numbers(), scale.numbers()]
        for (let row = 0; row < 48; row++) {
          const own = w.slice(row * columns, (row + 1) * columns)
          const largest = Math.max(...own.map(Math.abs))
          const rounding = dtype === 'float32' ? 1e-6 : 2 ** -8
          if (row !== 5) assert.ok(Math.abs(s[row]! / (largest / 127) - 1) < rounding, `scale of row ${row}`)
          own.forEach((value, i) => {
            const error = Math.abs(value - q[row * columns + i]! * s[row]!)
            assert.ok(error <= s[row]! * 0.5001, `row ${row}, column ${i}: ${error / s[row]!} of a step`)
          })
        }
        assert.ok(
          q.slice(5 * columns, 6 * columns).every((v) => v === 0),
          'a row of zeros stays one',
        )
      })
      free(net)
    }))

/** bitsandbytes 0.45: `create_normal_map`, and the borders of `dQuantizeNF4`. */
const published = [
  ...[-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334],
  ...[-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224],
  ...[0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
]

test('the 16 values of NF4 are those of bitsandbytes, and each is a code in a byte with its neighbour', () => {
  assert.deepEqual(nf4Values, published)
  const order = [15, 0, 7, 3, 12, 8, 1, 14, 2, 13, 4, 11, 5, 10, 6, 9]
  tidy(() => {
    const row = Float32Array.from({ length: columns }, (_, i) => published[order[i % 16]!]! * (i < 64 ? 1 : 4))
    const { numbers, scale } = quantize(tensor(row, [1, columns]), 'nf4', 'float32')
    assert.deepEqual([numbers.dtype, numbers.shape, scale.numbers()], ['uint8', [1, 64], [1, 4]])
    const bytes = Array.from({ length: 64 }, (_, i) => {
      const code = (at: number) => (at < columns ? order[at % 16]! : 7) // filled up with zeros
      return 16 * code(2 * i) + code(2 * i + 1)
    })
    assert.deepEqual(numbers.numbers(), bytes)
    assert.deepEqual(dequantize({ numbers, scale }, columns).numbers(), [...row])
  })
})

for (const dtype of ['float32', 'bfloat16'] as const)
  test(`a matrix in NF4 has the nearest value times its block's own largest magnitude, scales in ${dtype}`, () =>
    expectNoLeak(() => {
      const net = uneven()
      tidy(() => {
        const { weight } = net.layer
        weight.select(0, 5).narrow(0, 64, 16).zero_()
        const matrix = quantize(weight, 'nf4', dtype)
        assert.deepEqual([matrix.scale.dtype, matrix.scale.shape], [dtype, [48, 2]])
        const table = tensor(Float32Array.from(published)).to(dtype).to('float32').numbers()
        const [w, q, s] = [weight, dequantize(matrix, columns), matrix.scale].map((t) => t.to('float32').numbers())
        const rounding = dtype === 'float32' ? 1e-6 : 2 ** -8
        w!.forEach((value, i) => {
          const [row, column] = [Math.floor(i / columns), i % columns]
          const first = row * columns + (column < 64 ? 0 : 64)
          const own = w!.slice(first, column < 64 ? first + 64 : (row + 1) * columns)
          const largest = Math.max(...own.map(Math.abs))
          const scale = s![2 * row + (column < 64 ? 0 : 1)]!
          if (largest > 0) assert.ok(Math.abs(scale / largest - 1) <= rounding, `scale at ${row}, ${column}`)
          const least = Math.min(...table.map((v) => Math.abs(value - v * scale)))
          const error = Math.abs(value - q![i]!)
          assert.ok(error <= least + rounding * 1.5 * scale, `row ${row}, column ${column}: ${error}, not ${least}`)
        })
      })
      free(net)
    }))

test('the error of a product is what rounding each row predicts', () =>
  expectNoLeak(() => {
    const [net, exact] = [uneven(), uneven()]
    storeQuantized(net.layer, 'int8', 'float32')
    tidy(() => {
      const x = input(40)
      const error = net.layer.forward(x).sub(exact.layer.forward(x)).numbers()
      const [scale, values] = [net.layer.weight_scale!.numbers(), x.numbers()]
      const ratios: number[] = []
      for (let row = 0; row < 40; row++) {
        const own = values.slice(row * columns, (row + 1) * columns)
        const most = own.reduce((sum, v) => sum + Math.abs(v), 0) / 2 // half a step of every weight
        const likely = Math.sqrt(own.reduce((sum, v) => sum + v * v, 0) / 12) // steps spread evenly
        for (let out = 0; out < 48; out++) {
          const steps = error[row * 48 + out]! / scale[out]!
          assert.ok(Math.abs(steps) <= most * 1.001, `row ${row}, output ${out}: ${steps} steps, at most ${most}`)
          ratios.push((steps / likely) ** 2)
        }
      }
      const mean = Math.sqrt(ratios.reduce((a, b) => a + b, 0) / ratios.length)
      assert.ok(mean > 0.8 && mean < 1.2, `${mean} of the predicted deviation`)
    })
    free(net)
    free(exact)
  }))

for (const [form, dtype] of forms.flatMap((f) => [[f, 'float32'] as const, [f, 'bfloat16'] as const]))
  test(`gradients of adapters and input are those of autograd through the same numbers as a plain weight, ${form}, ${dtype}`, () =>
    expectNoLeak(() => {
      const grads = twice(form, dtype).map((net) => {
        addLora(net, (path) => path === 'layer', { rank: 4, alpha: 8, seed: 2 })
        const { lora_A, lora_B } = net.layer
        tidy(() => void lora_B!.weight.add_(0.1))
        trainOnly(net, [/\.lora_/])
        const out = tidy(() => {
          const x = input().to(dtype).requiresGrad_()
          const y = net.layer.forward(x)
          backward(y.to('float32').square().sum())
          const all = [y, x.grad()!, lora_A!.weight.grad()!, lora_B!.weight.grad()!]
          return all.map((t: Tensor) => t.detach().to('float32').numbers())
        })
        for (const t of [lora_A!.weight, lora_B!.weight]) t.setGrad(null)
        free(net)
        return out
      })
      assert.ok(
        grads[0]!.every((list) => list.some((v) => v !== 0)),
        'every gradient is there',
      )
      assert.deepEqual(grads[0], grads[1])
    }))

test('a product that is given is asked first, for quantized matrices alone and for as long as it is given', () =>
  expectNoLeak(() => {
    const [net, plain] = twice('nf4', 'float32')
    tidy(() => {
      const x = input()
      const made = net.layer.forward(x).numbers()
      const asked: unknown[] = []
      const seen = (fn: () => Tensor | null) =>
        withProduct(
          (rows, { numbers, scale, bias }) => {
            asked.push([rows === x, numbers === net.layer.weight, scale === net.layer.weight_scale, bias?.shape])
            return fn()
          },
          () => [net.layer.forward(x).numbers(), plain.layer.forward(x).numbers()],
        )
      const ones = tensor(new Float32Array(5 * 48).fill(1), [5, 48])
      assert.deepEqual(
        seen(() => ones),
        [ones.numbers(), made],
      )
      assert.deepEqual(
        seen(() => null),
        [made, made],
      )
      assert.throws(() =>
        seen(() => {
          throw new Error('no')
        }),
      )
      assert.deepEqual(asked, Array(3).fill([true, true, true, [48]]))
      assert.deepEqual(net.layer.forward(x).numbers(), made)
    })
    free(net)
    free(plain)
  }))

for (const [form, bits] of [
  ['int8', 8],
  ['nf4', 4],
] as const)
  test(`a weight in ${bits} bit does not train; the refusal leaves the layer as it was`, () =>
    expectNoLeak(() => {
      const [net, plain] = twice(form, 'float32')
      const stored = `expected a weight that is stored exactly, got one in ${bits} bit`
      assert.throws(
        () => trainOnly(net, [/^layer\.weight$/]),
        new RegExp(`trainable: layer\\.weight: ${stored}\\. open the model with frozenWeights exact`),
      )
      addLora(net, (path) => path === 'layer', { rank: 4, alpha: 8, seed: 2 })
      tidy(() => {
        const x = input()
        assert.deepEqual(net.layer.forward(x).numbers(), plain.layer.forward(x).numbers()) // B is zero
      })
      free(net)
      free(plain)
    }))

/** Two linears of one input, of which the first gets adapters, and one that is alone and exact. */
class Mixed extends Module implements Packing {
  readonly a = new Linear(columns, 24)
  readonly b = new Linear(columns, 16, { bias: false })
  readonly exact = new Linear(columns, 8)
  packs() {
    return [[this.a, this.b]]
  }
}

const scale = 1.5
function mixed(form: QuantizedForm, dtype: DType, rank = 4): Mixed {
  const net = new Mixed()
  initRandom(net, { seed: 5, std: 1 })
  for (const linear of [net.a, net.b]) storeQuantized(linear, form, dtype)
  addLora(net, (path) => path === 'a', { rank, alpha: scale * rank, seed: 2 })
  noGrad(() => tidy(() => void net.a.lora_B!.weight.copy_(randn([24, rank]))))
  return net
}

/** W + s B A in float64, of the stored numbers as they are defined. */
function valuesOf({ weight, weight_scale, lora_A, lora_B }: Linear, form: QuantizedForm): number[] {
  const values = (t: Tensor) => tidy(() => t.detach().to('float64').numbers())
  const [q, s] = [values(weight), values(weight_scale!)]
  const [a, b] = lora_A ? [values(lora_A.weight), values(lora_B!.weight)] : [[], []]
  const [rows, rank, blocks] = [weight.size(0), b.length / weight.size(0), s.length / weight.size(0)]
  const value = (row: number, column: number) => {
    if (form === 'int8') return q[row * columns + column]! * s[row]!
    const byte = q[row * 32 * blocks + (column >> 1)]!
    return published[column % 2 === 0 ? byte >> 4 : byte & 15]! * s[row * blocks + (column >> 6)]!
  }
  return Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns]
    let sum = value(row, column)
    for (let k = 0; k < rank; k++) sum += scale * b[row * rank + k]! * a[k * columns + column]!
    return sum
  })
}

const halves = { float32: 1e-6, bfloat16: 2 ** -7 } // a weight is rounded twice, its adapter's factors once more
for (const [form, dtype] of forms.flatMap((f) => [[f, 'float32'] as const, [f, 'bfloat16'] as const]))
  for (const kept of [false, true])
    test(`merged, quantized weights are W + s B A, ${form}, ${dtype}, ${kept ? 'in places that stay' : 'freed at the end'}; then all is as it was`, () => {
      const net = mixed(form, dtype)
      expectNoLeak(() => {
        const places = kept ? new MergedWeights() : undefined
        const layers = [net.a, net.b]
        const expected = layers.map((linear) => valuesOf(linear, form))
        const stored = () =>
          [...layers, net.exact].map((l) => [l.weight.handle, l.weight_scale?.handle, l.adapter?.enabled])
        const before = stored()
        const apart = tidy(() => noGrad(() => net.a.forward(input().to(dtype)).to('float32').numbers()))
        const work = () => {
          assert.equal(net.a.adapter!.enabled, false)
          assert.equal(net.exact.weight.handle, before[2]![0], 'nothing is merged there')
          layers.forEach(({ weight }, i) => {
            assert.deepEqual([weight.dtype, weight.shape], [dtype, [expected[i]!.length / columns, columns]])
            const values = tidy(() => weight.to('float64').numbers())
            const far = Math.max(...values.map((v, k) => Math.abs(v - expected[i]![k]!)))
            const most = Math.max(...expected[i]!.map(Math.abs))
            assert.ok(far <= halves[dtype] * most, `layer ${i}: ${far} of ${most}`)
          })
          if (kept) tidy(() => assert.deepEqual(packedWeight(layers).shape, [40, columns]))
          return tidy(() => net.a.forward(input().to(dtype)).to('float32').numbers())
        }
        for (let i = 0; i < 2; i++) {
          const said = withMergedLora(net, work, places)
          const far = Math.max(...said.map((v, k) => Math.abs(v - apart[k]!)))
          assert.ok(far < 4 * halves[dtype] * Math.max(...apart.map(Math.abs)), `outputs differ by ${far}`)
          assert.deepEqual(stored(), before)
        }
        const fail = () => {
          throw new Error('stopped')
        }
        assert.throws(() => withMergedLora(net, fail, places), /stopped/)
        assert.deepEqual(stored(), before)
        places?.dispose()
      })
      free(net)
    })

test('in places, a kernel for matrices in the dtype of their scale gets the place and the factors, A times the scale', () => {
  const net = mixed('nf4', 'bfloat16')
  const places = new MergedWeights()
  const asked: unknown[] = []
  const values = (t: Tensor) => tidy(() => t.to('float32').numbers())
  const factors = tidy(() => {
    const { lora_A, lora_B } = net.a
    return [lora_B!.weight.to('bfloat16'), lora_A!.weight.mul(scale).to('bfloat16')].map(values)
  })
  widenWith((matrix, low, place) => {
    const layer = [net.a, net.b].find(({ weight }) => weight === matrix.numbers)!
    asked.push([layer === net.a, matrix.scale === layer.weight_scale, low && [low.factors, low.inputs].map(values)])
    return noGrad(() => place!.fill_(7))
  })
  try {
    const merged = () => [net.a, net.b].flatMap(({ weight }) => values(weight))
    assert.ok(withMergedLora(net, merged, places).every((v) => v === 7))
  } finally {
    widenWith(() => null)
  }
  assert.deepEqual(asked, [
    [true, true, factors],
    [false, true, null],
  ])
  places.dispose()
  free(net)
})
