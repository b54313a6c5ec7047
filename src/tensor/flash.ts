// Attention over packed sequences that also returns its log-sum-exp, and its derivative from a given output and log-sum-exp. With these
// a caller can combine attention over several sets of keys. N queries, M keys of all sequences, H and K heads, D head size.
import { hasOp, op } from '../engine/index.ts'
import { cat, zeros } from './ops.gen.ts'
import { type Tensor, tensor } from './tensor.ts'

export interface Sequences {
  /** Rows where the sequences begin, and where the last ends: int32 [n + 1]. */
  readonly queryStarts: Tensor
  readonly keyStarts: Tensor
  readonly longestQuery: number
  readonly longestKey: number
  /** Query i of a sequence sees its keys up to i; all of them otherwise. */
  readonly causal: boolean
}

export interface Attended {
  out: Tensor // [N, H, D]
  logSumExp: Tensor // [H, N] float32
  /** What the fused kernel wants back. */
  random: readonly Tensor[]
}

export interface AttentionGrads {
  query: Tensor
  key: Tensor
  value: Tensor
}

export function hasFlashAttention(device: string): boolean {
  return device.startsWith('cuda') && hasOp('_flash_attention_forward') && hasOp('_flash_attention_backward')
}

/** q [N, H, D], k and v [M, K, D]: softmax(q k^T / sqrt(D)) v within each sequence. */
export function flashAttention(q: Tensor, k: Tensor, v: Tensor, s: Sequences): Attended {
  if (!isFused(q)) return plainForward(q, k, v, s)
  const sizes = [s.queryStarts, s.keyStarts, s.longestQuery, s.longestKey] as const
  const made = op('_flash_attention_forward')(q, k, v, ...sizes, 0, s.causal, false) as Record<string, Tensor>
  const [out, logSumExp, ...random] = Object.values(made) // their names differ from torch to torch, their order does not
  return { out: out!, logSumExp: logSumExp!, random: random.slice(0, 2) }
}

/** Gradients of what one call contributed to a joined output: `attended` is the joined one. */
export function flashAttentionBackward(
  grad: Tensor,
  [q, k, v]: readonly [Tensor, Tensor, Tensor],
  { out, logSumExp, random }: Attended,
  s: Sequences,
): AttentionGrads {
  if (!isFused(q)) return plainBackward(grad, [q, k, v], { out, logSumExp, random }, s)
  const sizes = [s.queryStarts, s.keyStarts, s.longestQuery, s.longestKey] as const
  const made = op('_flash_attention_backward')(grad, q, k, v, out, logSumExp, ...sizes, 0, s.causal, ...random)
  const [query, key, value] = made as [Tensor, Tensor, Tensor]
  return { query, key, value }
}

const isFused = (q: Tensor) => q.dtype === 'bfloat16' && hasFlashAttention(q.device)

/** The sequences one after the other; rows [from, to) of queries and keys. */
function spans({ queryStarts, keyStarts }: Sequences): { queries: [number, number]; keys: [number, number] }[] {
  const [q, k] = [queryStarts.numbers(), keyStarts.numbers()]
  return q.slice(1).map((_, i) => ({ queries: [q[i]!, q[i + 1]! - q[i]!], keys: [k[i]!, k[i + 1]! - k[i]!] }))
}

/** Heads first, key heads repeated: [H, n, D] of rows. */
function headsOf(x: Tensor, [from, count]: readonly [number, number], heads: number): Tensor {
  const own = x.narrow(0, from, count).transpose(0, 1)
  const groups = heads / own.size(0)
  return groups === 1 ? own : own.repeatInterleave(groups, { dim: 0 })
}

/** [H, n, m] */
function scoresOf(q: Tensor, k: Tensor, causal: boolean): Tensor {
  const scores = q.matmul(k.transpose(1, 2)).mul(1 / Math.sqrt(q.size(2)))
  if (!causal) return scores
  const seen = tensor(
    Uint8Array.from({ length: q.size(1) * k.size(1) }, (_, i) => Number(i % k.size(1) > Math.floor(i / k.size(1)))),
    [q.size(1), k.size(1)],
    { device: q.device },
  ).to('bool')
  return scores.maskedFill(seen, Number.NEGATIVE_INFINITY)
}

function plainForward(q: Tensor, k: Tensor, v: Tensor, s: Sequences): Attended {
  const H = q.size(1)
  const parts = spans(s).map(({ queries, keys }) => {
    const scores = scoresOf(headsOf(q, queries, H), headsOf(k, keys, H), s.causal)
    const out = scores.softmax(-1).matmul(headsOf(v, keys, H)) // [H, n, D]
    return { out: out.transpose(0, 1), lse: scores.logsumexp([-1]) }
  })
  return {
    out: cat(parts.map((p) => p.out)),
    logSumExp: cat(
      parts.map((p) => p.lse),
      { dim: 1 },
    ),
    random: [],
  }
}

function plainBackward(
  grad: Tensor,
  [q, k, v]: readonly [Tensor, Tensor, Tensor],
  { out, logSumExp }: Attended,
  s: Sequences,
): AttentionGrads {
  const [H, K] = [q.size(1), k.size(1)]
  const scale = 1 / Math.sqrt(q.size(2))
  const grads = { query: zerosLike(q), key: zerosLike(k), value: zerosLike(v) }
  for (const { queries, keys } of spans(s)) {
    const [qs, ks, vs] = [headsOf(q, queries, H), headsOf(k, keys, H), headsOf(v, keys, H)]
    const [ds, os] = [headsOf(grad, queries, H), headsOf(out, queries, H)]
    const p = scoresOf(qs, ks, s.causal)
      .sub(logSumExp.narrow(1, ...queries).unsqueeze(-1))
      .exp() // [H, n, m]
    const inner = ds.mul(os).sum(-1, { keepdim: true })
    const ofScores = p.mul(ds.matmul(vs.transpose(1, 2)).sub(inner)).mul(scale)
    add(grads.query, queries, ofScores.matmul(ks))
    add(grads.key, keys, grouped(ofScores.transpose(1, 2).matmul(qs), K))
    add(grads.value, keys, grouped(p.transpose(1, 2).matmul(ds), K))
  }
  return grads
}

const zerosLike = (x: Tensor) => zeros([...x.shape], { dtype: x.dtype, device: x.device })

/** [H, m, D] -> [K, m, D]: the heads that shared a key head. */
function grouped(x: Tensor, heads: number): Tensor {
  const [H, m, D] = x.shape as [number, number, number]
  return H === heads ? x : x.view([heads, H / heads, m, D]).sum([1])
}

function add(into: Tensor, [from, count]: readonly [number, number], x: Tensor): void {
  into.narrow(0, from, count).add_(x.transpose(0, 1))
}
