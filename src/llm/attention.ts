// What the language models share. B rows, T tokens, H query heads, K key/value heads, D head size, L cached columns.
import { type KVCache, type RopeTable, rotate } from '../nn/index.ts'
import { attention, cat, type Tensor } from '../tensor/index.ts'

/** What a pass over the layers needs besides the hidden states. */
export interface LlmContext {
  rope: RopeTable
  /** True = may attend, or added to the scores; [B or 1, 1, T, L]. Absent: plain causal, or everything for a single token. */
  mask?: Tensor
  cache?: KVCache
  /** Columns of the cache this pass writes, and how many of them attention reads (all, when absent). */
  columns?: Tensor
  length?: number
}

/** [B, T, H*D] -> [B, H, T, D] */
export function splitHeads(x: Tensor, heads: number, dim: number): Tensor {
  const [B, T] = [x.size(0), x.size(1)]
  return T === 1 ? x.view([B, heads, 1, dim]) : x.view([B, T, heads, dim]).transpose(1, 2)
}

/** Queries and keys together where a token is small work: half as many ops. */
function rotated(q: Tensor, k: Tensor, rope: RopeTable): [Tensor, Tensor] {
  if (q.size(2) > 1) return [rotate(q, rope), rotate(k, rope)]
  const both = rotate(cat([q, k], { dim: 1 }), rope)
  return [both.slice({ dim: 1, end: q.size(1) }), both.slice({ dim: 1, start: q.size(1) })]
}

/** Rotates, caches, attends; returns [B, T, H*D]. */
export function attend(layer: number, q: Tensor, k: Tensor, v: Tensor, context: LlmContext): Tensor {
  const [query, turned] = rotated(q, k, context.rope)
  let [key, value] = [turned, v]
  if (context.cache) {
    const all = context.cache.put(layer, context.columns!, key, value)
    const end = context.length
    key = end === undefined ? all.key : all.key.slice({ dim: 2, end })
    value = end === undefined ? all.value : all.value.slice({ dim: 2, end })
  }
  const out = attention(query, key, value, {
    mask: context.mask,
    causal: context.mask === undefined && q.size(2) > 1,
    groupedHeads: true,
  })
  const [B, T] = [q.size(0), q.size(2)]
  return (T === 1 ? out : out.transpose(1, 2)).reshape([B, T, -1])
}
