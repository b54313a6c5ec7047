import assert from 'node:assert/strict'
import test from 'node:test'
import { stream, streamId } from '../core/index.ts'
import { tokenEntropies, tokenLogps } from '../nn/index.ts'
import { backward, expectNoLeak, type Tensor, tensor, tidy } from '../tensor/index.ts'
import { GrpoConfig, type LossType, lossTypes } from './config.ts'
import { grpoLoss, type LossConfig, type LossInput } from './grpo.ts'

// B rows, T tokens, V vocabulary
const [B, T, V] = [4, 5, 7]
const mask = [
  [1, 1, 1, 0, 0],
  [1, 1, 1, 1, 1],
  [1, 0, 0, 0, 0],
  [1, 1, 1, 1, 0],
]
const numItems = mask.flat().reduce((a, b) => a + b, 0)
const random = stream(7, streamId.test)
const normals = (n: number, scale: number) => Float64Array.from({ length: n }, () => random.normal() * scale)
const logits = normals(B * T * V, 1.5)
const shift = normals(B * T, 0.3)
const drift = normals(B * T, 0.3)
const ids = tensorIds()
const advantages = [1.2, -0.7, 0.4, -0.9]

function tensorIds(): BigInt64Array {
  return BigInt64Array.from({ length: B * T }, () => BigInt(random.below(V)))
}

function configOf(lossType: LossType, more: Partial<LossConfig> = {}): LossConfig {
  const special =
    lossType === 'luspo'
      ? { importanceSamplingLevel: 'sequence', beta: 0 }
      : lossType === 'cispo'
        ? { epsilonHigh: 5 }
        : {}
  return {
    ...GrpoConfig.parse({ lossType, beta: 0.04, maxCompletionLength: 8, ...special }),
    numItemsInBatch: numItems,
    ...more,
  }
}

const f64 = { dtype: 'float64' } as const

function inputOf(x: Tensor, entropies = false): LossInput {
  const chosen = tensor(ids, [B, T])
  const logps = tokenLogps(x, chosen, 1)
  const base = tokenLogps(tensor(logits, [B, T, V]), chosen, 1)
  return {
    logps,
    oldLogps: base.add(tensor(shift, [B, T])),
    refLogps: base.add(tensor(drift, [B, T])),
    mask: tensor(mask, f64),
    advantages: tensor(advantages, f64),
    entropies: entropies ? tokenEntropies(x, 1) : null,
  }
}

const lossAt = (values: Float64Array, config: LossConfig) =>
  tidy(() => grpoLoss(inputOf(tensor(values, [B, T, V]), config.entropyCoef !== 0), config).loss.item())

function gradientAt(config: LossConfig): number[] {
  return tidy(() => {
    const x = tensor(logits, [B, T, V]).requiresGrad_()
    backward(grpoLoss(inputOf(x, config.entropyCoef !== 0), config).loss)
    return x.grad()!.numbers()
  })
}

/** cispo and vespo weigh by values that carry no gradient: their loss is not the integral of it. */
const stopped = new Set<LossType>(['cispo', 'vespo'])

for (const lossType of lossTypes.filter((t) => !stopped.has(t))) {
  test(`d loss / d logits of ${lossType} equals finite differences, entropy bonus included`, () => {
    const config = configOf(lossType, { entropyCoef: 0.03 })
    const grad = gradientAt(config)
    let largest = 0
    for (let i = 0; i < logits.length; i += 3) {
      const step = 1e-5
      const [up, down] = [logits.slice(), logits.slice()]
      up[i]! += step
      down[i]! -= step
      const difference = (lossAt(up, config) - lossAt(down, config)) / (2 * step)
      largest = Math.max(largest, Math.abs(difference))
      assert.ok(Math.abs(difference - grad[i]!) < 1e-8, `${i}: ${difference} against ${grad[i]}`)
    }
    assert.ok(largest > 1e-3, `largest ${largest}`)
  })
}

for (const lossType of ['cispo', 'vespo'] as const) {
  test(`d loss / d logits of ${lossType} is its weight times the finite difference of the log-prob`, () => {
    const config = configOf(lossType, { beta: 0 })
    const grad = gradientAt(config)
    tidy(() => {
      const input = inputOf(tensor(logits, [B, T, V]))
      const { ratio, phi } = grpoLoss(input, config)
      const weights = (phi ? phi.expand([B, T]) : ratio.clampMax(5))
        .mul(tensor(mask, f64))
        .mul(tensor(advantages, f64).unsqueeze(-1))
      const fixed = weights.div(-numItems).numbers()
      const sumAt = (values: Float64Array) => {
        const logps = inputOf(tensor(values, [B, T, V])).logps.numbers()
        return logps.reduce((sum, value, i) => sum + value * fixed[i]!, 0)
      }
      for (let i = 0; i < logits.length; i += 5) {
        const [up, down] = [logits.slice(), logits.slice()]
        up[i]! += 1e-5
        down[i]! -= 1e-5
        assert.ok(Math.abs((sumAt(up) - sumAt(down)) / 2e-5 - grad[i]!) < 1e-8, `element ${i}`)
      }
    })
  })
}

const rowsOf = (t: Tensor | null | undefined, from: number, to: number) =>
  t ? t.slice({ dim: 0, start: from, end: to }) : null

function accumulated(parts: number, lossType: LossType): number[] {
  return tidy(() => {
    const x = tensor(logits, [B, T, V]).requiresGrad_()
    for (let p = 0; p < parts; p++) {
      const [from, to] = [(p * B) / parts, ((p + 1) * B) / parts]
      const all = inputOf(x)
      const part: LossInput = {
        logps: rowsOf(all.logps, from, to)!,
        oldLogps: rowsOf(all.oldLogps, from, to),
        refLogps: rowsOf(all.refLogps, from, to),
        mask: rowsOf(all.mask, from, to)!,
        advantages: rowsOf(all.advantages, from, to)!,
      }
      backward(grpoLoss(part, configOf(lossType, { gradientAccumulationSteps: parts })).loss)
    }
    return x.grad()!.numbers()
  })
}

for (const lossType of ['grpo', 'dr_grpo', 'dapo', 'cispo', 'vespo', 'sapo', 'gmpo'] as const) {
  test(`${lossType} gives the same gradient for 1, 2 and 4 micro-batches`, () => {
    const whole = accumulated(1, lossType)
    for (const parts of [2, 4])
      for (const [i, g] of accumulated(parts, lossType).entries())
        assert.ok(Math.abs(g - whole[i]!) < 1e-15, `${parts} parts, ${i}`)
  })
}

test('bnpo does not: it divides by the tokens of each micro-batch', () => {
  const [whole, split] = [accumulated(1, 'bnpo'), accumulated(2, 'bnpo')]
  assert.ok(
    whole.some((g, i) => Math.abs(g - split[i]!) > 1e-4),
    'the gradients differ',
  )
})

function withMaskedValue(values: Float64Array, garbage: readonly number[]): Tensor {
  const out = Float32Array.from(values)
  mask.flat().forEach((m, i) => {
    if (m === 0) out[i] = garbage[i % garbage.length]!
  })
  return tensor(out, [B, T])
}

for (const lossType of lossTypes) {
  test(`garbage under the mask changes neither loss, gradient nor metrics of ${lossType}`, () => {
    const run = (garbage: readonly number[]) =>
      expectNoLeak(() =>
        tidy(() => {
          const base = shift.map((v) => v - 1.5)
          const logps = withMaskedValue(base, garbage).requiresGrad_()
          const entropies = withMaskedValue(base.map(Math.abs), garbage)
          const entropyFilter =
            lossType === 'gmpo' || lossType === 'luspo' ? {} : { topEntropyQuantile: 0.5, offPolicyMaskThreshold: 0.1 }
          const config = configOf(lossType, { entropyCoef: 0.01, ...entropyFilter })
          const result = grpoLoss(
            {
              logps,
              oldLogps: withMaskedValue(
                drift.map((v) => v - 1.5),
                garbage,
              ),
              refLogps: withMaskedValue(
                shift.map((v) => -1.5 - v),
                garbage,
              ),
              samplingLogps: withMaskedValue(
                shift.map((v) => -1.4 - v),
                garbage,
              ),
              mask: tensor(mask),
              advantages: tensor(advantages),
              entropies,
            },
            config,
          )
          backward(result.loss)
          return { loss: result.loss.item(), grad: logps.grad()!.numbers(), metrics: result.measure()() }
        }),
      )
    const clean = run([0])
    assert.ok(
      Number.isFinite(clean.loss) && clean.grad.some((g) => g !== 0),
      `loss ${clean.loss}, gradient ${clean.grad}`,
    )
    assert.deepEqual(run([1e4, -1e4]), clean)
    assert.deepEqual(run([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]), clean)
  })
}

test('a log-ratio beyond the guard gives a finite loss and no gradient from that token', () => {
  tidy(() => {
    const logps = tensor([[-1, -200]]).requiresGrad_()
    const { loss } = grpoLoss(
      {
        logps,
        oldLogps: tensor([[-1, -1]]),
        refLogps: tensor([[-1, -1]]),
        mask: tensor([[1, 1]]),
        advantages: tensor([-1]),
      },
      configOf('bnpo'),
    )
    backward(loss)
    assert.ok(Number.isFinite(loss.item()), 'a finite loss')
    assert.deepEqual(logps.grad()!.numbers().map(Number.isFinite), [true, true])
  })
})

test('a token whose entropy is exactly the quantile passes the entropy filter', () => {
  tidy(() => {
    const entropies = tensor([[5, 1, 3, 2, 4]])
    const [logps, mask] = [tensor([[-1, -1, -1, -1, -1]]), tensor([[1, 1, 1, 1, 1]])]
    const config = configOf('grpo', { beta: 0, topEntropyQuantile: 0.5 })
    const { entropyMask } = grpoLoss({ logps, mask, advantages: tensor([1]), entropies }, config)
    assert.deepEqual(entropyMask!.numbers(), [1, 0, 1, 0, 1])
  })
})

test('the entropy that steers is that of the tokens which the filter leaves', () => {
  tidy(() => {
    const input = {
      logps: tensor([[-1, -1, -1, -1]]),
      mask: tensor([[1, 1, 1, 1]]),
      advantages: tensor([1]),
      entropies: tensor([[0.1, 0.2, 0.3, 0.4]]),
    }
    const entropyMetrics = (topEntropyQuantile: number) => {
      const { entropy, entropy_sum, entropy_tokens } = grpoLoss(
        input,
        configOf('grpo', { beta: 0, topEntropyQuantile }),
      ).measure()()
      return [entropy, entropy_sum, entropy_tokens].map((x) => Number(x!.toFixed(6)))
    }
    assert.deepEqual(entropyMetrics(1), [0.25, 1, 4])
    assert.deepEqual(entropyMetrics(0.5), [0.25, 0.7, 2])
  })
})

test('bfloat16 log-probs are widened before anything is computed', () => {
  tidy(() => {
    const logps = tensor([[-1, -2]], { dtype: 'bfloat16' }).requiresGrad_()
    const { loss, perTokenLoss } = grpoLoss(
      { logps, mask: tensor([[1, 1]]), advantages: tensor([0.3]) },
      configOf('grpo', { beta: 0 }),
    )
    assert.equal(loss.dtype, 'float32')
    assert.equal(perTokenLoss.dtype, 'float32')
    assert.equal(loss.item(), Math.fround(-0.3))
  })
})

test('missing pieces are refused by name', () => {
  tidy(() => {
    const logps = tensor([[-1, -2]])
    const input = { logps, mask: tensor([[1, 1]]), advantages: tensor([1]) }
    assert.throws(() => grpoLoss(input, configOf('grpo')), /refLogps/)
    assert.throws(() => grpoLoss(input, configOf('grpo', { beta: 0, entropyCoef: 1 })), /entropies/)
    assert.throws(() => grpoLoss(input, configOf('dapo', { beta: 0, numItemsInBatch: undefined })), /numItemsInBatch/)
    assert.throws(() => grpoLoss({ ...input, mask: tensor([[1, 1, 1]]) }, configOf('grpo', { beta: 0 })), /mask/)
    assert.throws(() => grpoLoss({ ...input, isRatio: tensor([[1, 1]]) }, configOf('luspo')), /one loss per row/)
    assert.throws(() => grpoLoss({ ...input, advantages: tensor([1, 2]) }, configOf('grpo', { beta: 0 })), /advantages/)
  })
})
