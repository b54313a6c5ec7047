import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mergeLora } from '../../tests/support/merge-lora.ts'
import { backward, type DType, expectNoLeak, keep, type Tensor, tensor, tidy } from '../tensor/index.ts'
import {
  addLora,
  initRandom,
  Linear,
  Module,
  RMSNorm,
  storeInt8,
  trainOnly,
  withMergedLora,
  withProduct8,
} from './index.ts'
import { roundRows } from './int8.ts'

class Net extends Module {
  readonly layer = new Linear(64, 48)
  readonly norm = new RMSNorm(48, 1e-6)
}

/** Rows of very different size: a scale of another row, or of a column, would show. */
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

/** The same net twice: its layer in 8 bit, and with what the 8 bits stand for as a plain weight. */
function twice(dtype: DType): [Net, Net] {
  const [rounded, plain] = [uneven(), uneven()]
  storeInt8(rounded.layer, dtype)
  const { weight, weight_scale } = rounded.layer
  plain.layer.weight.dispose()
  plain.layer.weight = keep(tidy(() => weight.mul(weight_scale!)))
  return [rounded, plain]
}

const input = (rows = 5) =>
  tensor(
    Float32Array.from({ length: rows * 64 }, (_, i) => Math.sin(1 + i * 0.7)),
    [rows, 64],
  )

for (const dtype of ['float32', 'bfloat16'] as const)
  test(`a matrix in 8 bit is within half a step of its row's own scale, scales in ${dtype}`, () =>
    expectNoLeak(() => {
      const net = uneven()
      tidy(() => {
        const { weight } = net.layer
        weight.select(0, 5).zero_()
        const { numbers, scale } = roundRows(weight, dtype)
        assert.deepEqual([numbers.dtype, scale.dtype, scale.shape], ['int8', dtype, [48, 1]])
        const [w, q, s] = [weight.numbers(), numbers.numbers(), scale.numbers()]
        for (let row = 0; row < 48; row++) {
          const own = w.slice(row * 64, row * 64 + 64)
          const largest = Math.max(...own.map(Math.abs))
          const rounding = dtype === 'float32' ? 1e-6 : 2 ** -8
          if (row !== 5) assert.ok(Math.abs(s[row]! / (largest / 127) - 1) < rounding, `scale of row ${row}`)
          own.forEach((value, i) => {
            const error = Math.abs(value - q[row * 64 + i]! * s[row]!)
            assert.ok(error <= s[row]! * 0.5001, `row ${row}, column ${i}: ${error / s[row]!} of a step`)
          })
        }
        assert.ok(
          q.slice(320, 384).every((v) => v === 0),
          'a row of zeros stays one',
        )
      })
      free(net)
    }))

test('the error of a product is what rounding each row predicts', () =>
  expectNoLeak(() => {
    const [net, exact] = [uneven(), uneven()]
    storeInt8(net.layer, 'float32')
    tidy(() => {
      const x = input(40)
      const error = net.layer.forward(x).sub(exact.layer.forward(x)).numbers()
      const [scale, values] = [net.layer.weight_scale!.numbers(), x.numbers()]
      const ratios: number[] = []
      for (let row = 0; row < 40; row++) {
        const own = values.slice(row * 64, row * 64 + 64)
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

for (const dtype of ['float32', 'bfloat16'] as const)
  test(`gradients of adapters and input are those of autograd through the same numbers as a plain weight, ${dtype}`, () =>
    expectNoLeak(() => {
      const grads = twice(dtype).map((net) => {
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

test('a product that is given is asked first, for matrices in 8 bit alone and for as long as it is given', () =>
  expectNoLeak(() => {
    const [net, plain] = twice('float32')
    tidy(() => {
      const x = input()
      const made = net.layer.forward(x).numbers()
      const asked: unknown[] = []
      const seen = (fn: () => Tensor | null) =>
        withProduct8(
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

test('a weight in 8 bit neither trains nor takes up adapters; a refusal leaves the layer as it was', () =>
  expectNoLeak(() => {
    const [net, plain] = twice('float32')
    assert.throws(
      () => trainOnly(net, [/^layer\.weight$/]),
      /trainable: layer\.weight: expected a weight that is stored exactly, got one in 8 bit\. open the model with frozenWeights exact/,
    )
    addLora(net, (path) => path === 'layer', { rank: 4, alpha: 8, seed: 2 })
    const refused = /lora: merged weight: expected a weight that is stored exactly, got one in 8 bit/
    assert.throws(() => mergeLora(net), refused)
    assert.throws(() => withMergedLora(net, () => 0), refused)
    tidy(() => {
      const x = input()
      assert.deepEqual(net.layer.forward(x).numbers(), plain.layer.forward(x).numbers()) // B is zero
    })
    free(net)
    free(plain)
  }))
