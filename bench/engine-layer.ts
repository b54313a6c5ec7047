// A Qwen2 decoder layer of plain tensor calls, with weights from a formula; engine-layer.py is the same in Python.
// B batch, T tokens, D hidden, H heads, K key/value heads, I intermediate size
import { cat, keep, noGrad, rmsNorm, type Tensor, tensor } from '../src/tensor/index.ts'

export interface LayerSize {
  hidden: number
  heads: number
  kvHeads: number
  intermediate: number
}

/** Three sizes: 32 wide for tests, 256 and 1024 for the bench. */
export function layerSize(hidden: number): LayerSize {
  const heads = Math.max(2, hidden / 64)
  return { hidden, heads, kvHeads: heads / 2, intermediate: hidden * 4 }
}

const shapes = ({ hidden, heads, kvHeads, intermediate }: LayerSize): Record<string, readonly number[]> => {
  const kv = (hidden / heads) * kvHeads
  return {
    norm1: [hidden],
    q: [hidden, hidden],
    qBias: [hidden],
    k: [kv, hidden],
    kBias: [kv],
    v: [kv, hidden],
    vBias: [kv],
    o: [hidden, hidden],
    norm2: [hidden],
    gate: [intermediate, hidden],
    up: [intermediate, hidden],
    down: [hidden, intermediate],
  }
}

/** The k-th value of the n-th array: the same formula in both languages. */
export function formula(n: number, length: number): Float32Array {
  const scale = n < 0 ? 1 : 0.05
  return Float32Array.from({ length }, (_, i) => scale * Math.sin(0.37 * (i % 9973) + 1.3 * (i % 7) + n))
}

export type LayerWeights = Record<string, Tensor>

export function layerWeights(size: LayerSize): LayerWeights {
  const entries = Object.entries(shapes(size)).map(([name, shape], n) => {
    const values = formula(
      n,
      shape.reduce((a, b) => a * b, 1),
    )
    if (name.startsWith('norm')) for (let i = 0; i < values.length; i++) values[i]! += 1
    return [name, keep(tensor(values, shape)).requiresGrad_()] as const
  })
  return Object.fromEntries(entries)
}

export interface LayerInput {
  x: Tensor // [B, T, D]
  cos: Tensor // [T, D/H]
  sin: Tensor // [T, D/H]
  mask: Tensor // [T, T] additive
}

export function layerInput({ hidden, heads }: LayerSize, batch: number, tokens: number): LayerInput {
  const dim = hidden / heads
  const angle = (t: number, i: number) => t / 10000 ** ((2 * (i % (dim / 2))) / dim)
  const table = (f: (v: number) => number) =>
    Float32Array.from({ length: tokens * dim }, (_, k) => f(angle(Math.floor(k / dim), k % dim)))
  const mask = Float32Array.from({ length: tokens * tokens }, (_, k) =>
    k % tokens > Math.floor(k / tokens) ? Number.NEGATIVE_INFINITY : 0,
  )
  const all = {
    x: tensor(formula(-1, batch * tokens * hidden), [batch, tokens, hidden]),
    cos: tensor(table(Math.cos), [tokens, dim]),
    sin: tensor(table(Math.sin), [tokens, dim]),
    mask: tensor(mask, [tokens, tokens]),
  }
  for (const t of Object.values(all)) keep(t)
  return all
}

function rotate(x: Tensor, { cos, sin }: LayerInput): Tensor {
  const [first, second] = x.chunk(2, { dim: -1 }) as [Tensor, Tensor]
  return x.mul(cos).add(cat([second.neg(), first], { dim: -1 }).mul(sin))
}

/** [B, T, D] -> [B, T, D]. Attention is written out, so that both languages run the same ops. */
export function layerForward(w: LayerWeights, { heads, kvHeads, hidden }: LayerSize, input: LayerInput): Tensor {
  const { x, mask } = input
  const [B, T] = x.shape as [number, number, number]
  const dim = hidden / heads
  const split = (t: Tensor, n: number) => t.view([B, T, n, dim]).transpose(1, 2) // [B, n, T, dim]
  const h = rmsNorm(x, w.norm1!, 1e-6)
  const q = rotate(split(h.linear(w.q!, { bias: w.qBias! }), heads), input)
  const k = rotate(split(h.linear(w.k!, { bias: w.kBias! }), kvHeads), input).repeatInterleave(heads / kvHeads, {
    dim: 1,
  })
  const v = split(h.linear(w.v!, { bias: w.vBias! }), kvHeads).repeatInterleave(heads / kvHeads, { dim: 1 })
  const scores = q
    .matmul(k.transpose(2, 3))
    .mul(1 / Math.sqrt(dim))
    .add(mask)
  const mixed = scores.softmax(-1).matmul(v).transpose(1, 2).reshape([B, T, hidden])
  const x2 = x.add(mixed.linear(w.o!))
  const g = rmsNorm(x2, w.norm2!, 1e-6)
  return x2.add(g.linear(w.gate!).silu().mul(g.linear(w.up!)).linear(w.down!))
}

/** One number whose gradient reaches every weight. */
export function layerLoss(out: Tensor): Tensor {
  return out.mul(out).mean()
}

export function dropGrads(w: LayerWeights): void {
  noGrad(() => {
    for (const t of Object.values(w)) t.setGrad(null)
  })
}
