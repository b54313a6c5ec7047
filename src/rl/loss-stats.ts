import { stack, type Tensor, tidyNoGrad } from '../tensor/index.ts'

export interface Masked {
  mask: Tensor // [B, T]
  tokens: Tensor // [B, 1] per row
  divisor: Tensor // [B, 1] the same, at least 1
  advantages: Tensor // [B, 1]
}

/** Scalars of a loss: declared with it, computed once backward has started, on the device, and read together. */
export class LossStats {
  readonly #values: (() => Record<string, Tensor>)[] = []
  /** What they are computed from, beside the batch. */
  readonly uses: (Tensor | null)[] = []

  add(uses: readonly (Tensor | null)[], values: () => Record<string, Tensor>): void {
    this.uses.push(...uses)
    this.#values.push(values)
  }

  /** Mean over unmasked tokens, or over rows for a [B, 1] value. */
  tokenMean(name: string, value: Tensor, batch: Masked): void {
    this.add([value], () => ({ [name]: meanOf(value.to(batch.mask.dtype), batch) }))
  }

  /** Mean over tokens; and what steers an adaptive bonus: sum and count over the tokens that the entropy filter leaves. */
  entropy(value: Tensor, batch: Masked & { words: Tensor }, filter: Tensor | null): void {
    this.add([value, filter], () => {
      const words = batch.words.to(batch.mask.dtype)
      const used = filter ? filter.mul(words) : words
      const entropy = value.mul(words).sum().div(words.sum().clampMin(1))
      return { entropy, entropy_sum: value.mul(used).sum(), entropy_tokens: used.sum() }
    })
  }

  /** Mean over tokens, and the mean over rows of their means, over rows that have tokens. */
  kl(value: Tensor, batch: Masked): void {
    this.add([value], () => {
      const rows = batch.tokens.gt(0).to(batch.mask.dtype)
      const sum = value.mul(batch.mask).sum(-1, { keepdim: true }).div(batch.divisor).mul(rows).sum()
      return { kl: meanOf(value, batch), kl_mean_of_sequence_means: sum.div(rows.sum().clampMin(1)) }
    })
  }

  /** Share of tokens (rows) whose gradient the clip removes: below `low` with A < 0, above `high` with A > 0. */
  clips(ratio: Tensor, low: number, high: number, batch: Masked): void {
    this.add([ratio], () => {
      const { dtype } = batch.mask
      const below = ratio.lt(low).logicalAnd(batch.advantages.lt(0))
      const above = ratio.gt(high).logicalAnd(batch.advantages.gt(0))
      const none = batch.tokens.eq(0)
      return {
        'clip_ratio/low_mean': meanOf(below.to(dtype), batch),
        'clip_ratio/high_mean': meanOf(above.to(dtype), batch),
        'clip_ratio/region_mean': meanOf(below.logicalOr(above).to(dtype), batch),
        'clip_ratio/low_min': rowsOf(below.to(dtype), batch).maskedFill(none, Number.POSITIVE_INFINITY).min(),
        'clip_ratio/high_max': rowsOf(above.to(dtype), batch).maskedFill(none, Number.NEGATIVE_INFINITY).max(),
      }
    })
  }

  /** Computes them; what it returns waits for the device, once. */
  measure(): () => Record<string, number> {
    const { names, all } = tidyNoGrad(() => {
      const values: Record<string, Tensor> = Object.assign({}, ...this.#values.map((some) => some()))
      return { names: Object.keys(values), all: stack(Object.values(values)) } // [n]
    })
    return () => {
      const values = all.numbers()
      // infinity: the extreme of no row
      return Object.fromEntries(names.map((name, i) => [name, Number.isFinite(values[i]!) ? values[i]! : Number.NaN]))
    }
  }
}

function meanOf(value: Tensor, { mask }: Masked): Tensor {
  if (value.size(-1) === 1 && mask.size(-1) !== 1) return value.mean()
  return value.mul(mask).sum().div(mask.sum().clampMin(1))
}

/** [B, 1] */
function rowsOf(value: Tensor, { mask, divisor }: Masked): Tensor {
  if (value.size(-1) === 1 && mask.size(-1) !== 1) return value
  return value.mul(mask).sum(-1, { keepdim: true }).div(divisor)
}
