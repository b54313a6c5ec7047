// What each kernel computes, in ATen's ops: products in float32 of inputs rounded as the kernels round them. R rows, S hidden.
import type { AttentionInputs } from '../../src/kernels/decode.ts'
import type { LowRank, QuantizedMatrix } from '../../src/kernels/index.ts'
import { dequantize } from '../../src/nn/index.ts'
import { arange, cat, type Tensor, where } from '../../src/tensor/index.ts'

const wide = (t: Tensor) => t.to('float32')

/** x / rms(x) * weight, float32. */
export function normed(x: Tensor, weight: Tensor, eps: number): Tensor {
  const h = wide(x)
  return h.mul(h.mul(h).mean(-1, { keepdim: true }).add(eps).rsqrt()).mul(wide(weight))
}

/** [R, in] x [out, in] -> float32 [R, out] */
export function linear(x: Tensor, weight: Tensor, bias: Tensor | null = null): Tensor {
  return wide(x).linear(wide(weight), { bias: bias ? wide(bias) : null })
}

/** The same with a quantized matrix, and what a product of low rank adds to it. */
export function quantizedProduct(x: Tensor, { numbers, scale, bias }: QuantizedMatrix, low?: LowRank): Tensor {
  const y = wide(x).linear(dequantize({ numbers, scale: wide(scale) }, x.size(1)))
  const whole = bias ? y.add(wide(bias)) : y
  if (!low) return whole
  const inputs = low.inputs.chunk(low.parts.length, { dim: -1 })
  const factors = low.factors.split([...low.parts], { dim: 0 })
  return whole.add(
    cat(
      factors.map((part, i) => linear(inputs[i]!, part)),
      { dim: -1 },
    ),
  )
}

/** [R, 2I] -> [R, I] */
export function swiglu(both: Tensor): Tensor {
  const [gate, up] = both.chunk(2, { dim: -1 }) as [Tensor, Tensor]
  return gate.silu().mul(up)
}

/** Heads [R, H, D], normed where the model does, turned to the positions [R]. */
function turned(x: Tensor, norm: Tensor | null, eps: number, turns: Tensor, positions: Tensor): Tensor {
  const heads = norm ? normed(x, norm, eps).to(x.dtype) : x
  const table = turns.indexSelect(0, positions).to(x.dtype) // [R, D / 2, 2]
  const both = (i: number) => cat([table.select(2, i), table.select(2, i)], { dim: -1 }).unsqueeze(1) // [R, 1, D]
  const [a, b] = heads.chunk(2, { dim: -1 }) as [Tensor, Tensor]
  return heads.mul(both(0)).add(cat([b.neg(), a], { dim: -1 }).mul(both(1)))
}

/** The result of attention [R, H D] in float32, and the key and value of the new token [R, K, D]; of closed units what was there. */
export function attend(x: AttentionInputs): { out: Tensor; key: Tensor; value: Tensor } {
  const [K, D] = [x.promptKeys.size(1), x.promptKeys.size(3)]
  const R = x.qkv.size(0)
  const H = x.qkv.size(1) / D - 2 * K
  const T = x.clock.item()
  const share = R / x.promptOf.size(0)
  const [q, k, v] = x.qkv.split([H * D, K * D, K * D], { dim: -1 }).map((t) => t.view([R, -1, D])) as Tensor[]
  const positions = x.position.add(T)
  const query = wide(turned(q!, x.queryNorm, x.eps, x.turns, positions))
  const key = turned(k!, x.keyNorm, x.eps, x.turns, positions)
  const unit = x.promptOf.repeatInterleave(share, { dim: 0 })
  const [open, prompt] = [unit.ge(0).view([R, 1, 1]), unit.clamp({ min: 0 })]
  const all = (prompts: Tensor, own: Tensor, now: Tensor) =>
    cat([prompts.indexSelect(0, prompt), own.slice({ dim: 2, end: T }), now.unsqueeze(2)].map(wide), { dim: 2 })
  const [keys, values] = [all(x.promptKeys, x.ownKeys, key), all(x.promptValues, x.ownValues, v!)] // [R, K, L, D]
  const room = x.promptKeys.size(2)
  const column = arange(0, keys.size(2), { dtype: 'int64', device: keys.device })
  const length = x.promptLength.indexSelect(0, prompt).unsqueeze(1)
  const seen = column.lt(length).logicalOr(column.ge(room)).view([R, 1, 1, -1])
  const scores = query
    .view([R, K, H / K, D])
    .matmul(keys.transpose(-2, -1))
    .div(Math.sqrt(D)) // [R, K, H / K, L]
  const weights = where(seen, scores, Number.NEGATIVE_INFINITY).softmax(-1)
  const out = weights.matmul(values).reshape([R, H * D])
  return {
    out: where(open.squeeze(2), out, wide(x.out)),
    key: where(open, key, x.ownKeys.select(2, T)),
    value: where(open, v!, x.ownValues.select(2, T)),
  }
}

export interface Drawn {
  ids: Tensor // [R]
  logps: Tensor
  drawnLogps: Tensor
}

/** The smallest id whose share of the whole exceeds the row's number, in float64; the lowest of the largest without numbers. */
export function draw(scores: Tensor, temperature: number, numbers: Tensor | null, never: Tensor | null): Drawn {
  const all = scores.to('float64').div(temperature)
  const allowed = never ? all.indexFill(-1, never.to('int64'), Number.NEGATIVE_INFINITY) : all
  const ids = numbers ? allowed.softmax(-1).cumsum(-1).le(numbers.unsqueeze(-1)).sum(-1) : allowed.argmax({ dim: -1 })
  const at = (t: Tensor) => t.logSoftmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
  return { ids, logps: at(all), drawnLogps: at(allowed) }
}
