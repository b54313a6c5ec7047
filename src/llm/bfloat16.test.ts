// Where a decoder in bfloat16 must not compute in it: the angles of positions, and everything after the head.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tinyConfig } from '../../tests/support/sa2va.ts'
import { stream } from '../core/index.ts'
import { initRandom, Rope, replaceTensor, tensorAt } from '../nn/index.ts'
import { arange, noGrad, tensor, tidy, zeros } from '../tensor/index.ts'
import { readLlmConfig } from './config.ts'
import { buildLanguageModule, Decoder } from './model.ts'
import { headLogProbs } from './score/teacher.ts'

const cfg = readLlmConfig(tinyConfig().llm_config as Record<string, unknown>, 'config.json')
const N = 600
const random = stream(3, 1)
const ids = BigInt64Array.from({ length: N }, (_, i) => BigInt(Math.floor(random.uniformAt(i) * 450)))

/** Weights that bfloat16 holds exactly; attention that looks at how far a token is, through the biases of q and k. */
function decoder(dtype: 'bfloat16' | 'float32'): Decoder {
  const module = buildLanguageModule(cfg)
  initRandom(module, { seed: 1, std: 0.05, dtype: 'bfloat16' })
  for (const slot of module.slots()) {
    if (/[qk]_proj\.bias$/.test(slot.name)) noGrad(() => tensorAt(slot).fill_(1))
    replaceTensor(
      slot,
      tidy(() => tensorAt(slot).to(dtype, { copy: true })),
    )
  }
  return new Decoder(cfg, module)
}

function free({ module }: Decoder): void {
  for (const t of module.parameters().values()) t.dispose()
}

test('log-probs of 600 tokens are within 0.05 of float32: far positions keep their angles', () => {
  const [half, wide] = (['bfloat16', 'float32'] as const).map((dtype) => {
    const own = decoder(dtype)
    const logps = noGrad(() =>
      tidy(() => {
        const all = tensor(ids, [1, N])
        const hidden = own.forward(own.embed(all)).squeeze(0)
        const scores = headLogProbs(own, hidden.narrow(0, 0, N - 1), all.squeeze(0).narrow(0, 1, N - 1), 1)
        return scores.select(0, 0).numbers()
      }),
    )
    free(own)
    return logps
  }) as [number[], number[]]
  const worst = Math.max(...half.map((v, i) => Math.abs(v - wide[i]!)))
  assert.ok(worst < 0.05, `differ by ${worst}`)
})

test('a table in bfloat16 holds the cosine of the exact angle, rounded once', () => {
  tidy(() => {
    const [dim, theta, length] = [32, 1e6, 2048]
    const positions = arange(0, length, { dtype: 'int64' }).unsqueeze(0)
    const { cos, sin } = new Rope(dim, theta).table(positions, zeros([1], { dtype: 'bfloat16' }))
    const [c, s] = [cos.numbers(), sin.numbers()]
    for (let p = 0; p < length; p += 7)
      for (let k = 0; k < dim; k++) {
        const angle = p / theta ** ((2 * (k % (dim / 2))) / dim)
        const at = p * dim + k
        const error = Math.max(Math.abs(c[at]! - Math.cos(angle)), Math.abs(s[at]! - Math.sin(angle)))
        assert.ok(error < 0.0025, `position ${p}, place ${k}: ${error}`) // half a step of bfloat16 below 1, and float32's angle
      }
  })
})

test('after the head scores are float32: log-probs and entropies equal a float64 softmax of the rounded scores', () => {
  const own = decoder('bfloat16')
  noGrad(() =>
    tidy(() => {
      const hidden = own.embed(tensor(ids.subarray(0, 40))).mul(40)
      const target = tensor(ids.subarray(1, 41))
      for (const temperature of [1, 0.7]) {
        const got = headLogProbs(own, hidden, target, temperature)
        const scores = own.logits(hidden)
        assert.equal(scores.dtype, 'float32')
        const [logps, entropies] = bySoftmax(scores.numbers(), cfg.vocab_size, temperature)
        const chosen = logps.map((row, i) => row[Number(ids[i + 1])]!)
        const expected = [...chosen, ...entropies]
        got.numbers().forEach((v, i) => {
          assert.ok(Math.abs(v - expected[i]!) < 1e-4, `${i}: ${v} for ${expected[i]}`)
        })
      }
    }),
  )
  free(own)
})

function bySoftmax(scores: readonly number[], width: number, temperature: number): [number[][], number[]] {
  const rows = Array.from({ length: scores.length / width }, (_, r) =>
    scores.slice(r * width, (r + 1) * width).map((v) => v / temperature),
  )
  const logps = rows.map((row) => {
    const top = Math.max(...row)
    const total = top + Math.log(row.reduce((sum, v) => sum + Math.exp(v - top), 0))
    return row.map((v) => v - total)
  })
  return [logps, logps.map((row) => -row.reduce((sum, v) => sum + Math.exp(v) * v, 0))]
}
