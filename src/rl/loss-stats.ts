import { noGrad, stack, type Tensor } from '../tensor/index.ts'

export interface Masked {
  mask: Tensor // [B, T]
  tokens: Tensor // [B, 1] per row
  divisor: Tensor // [B, 1] the same, at least 1
  advantages: Tensor // [B, 1]
}

/** Scalars of a loss, gathered on the device and read together. */
export class LossStats {
  readonly #names: string[] = []
  readonly #values: Tensor[] = []

  add(name: string, value: Tensor): void {
    this.#names.push(name)
    this.#values.push(value.detach())
  }

  /** Mean over unmasked tokens, or over rows for a [B, 1] value. */
  tokenMean(name: string, value: Tensor, batch: Masked): void {
    noGrad(() => this.add(name, meanOf(value.detach().to(batch.mask.dtype), batch)))
  }

  /** Mean over tokens; and what steers an adaptive bonus: sum and count over the tokens that the entropy filter leaves. */
  entropy(entropies: Tensor, batch: Masked & { words: Tensor }, filter: Tensor | null): void {
    noGrad(() => {
      const words = batch.words.to(batch.mask.dtype)
      const used = filter ? filter.mul(words) : words
      const value = entropies.detach()
      this.add('entropy', value.mul(words).sum().div(words.sum().clampMin(1)))
      this.add('entropy_sum', value.mul(used).sum())
      this.add('entropy_tokens', used.sum())
    })
  }

  /** Mean over tokens, and the mean over rows of their means, over rows that have tokens. */
  kl(kl: Tensor, batch: Masked): void {
    noGrad(() => {
      const value = kl.detach()
      this.add('kl', meanOf(value, batch))
      const rows = batch.tokens.gt(0).to(batch.mask.dtype)
      const sum = value.mul(batch.mask).sum(-1, { keepdim: true }).div(batch.divisor).mul(rows).sum()
      this.add('kl_mean_of_sequence_means', sum.div(rows.sum().clampMin(1)))
    })
  }

  /** Share of tokens (rows) whose gradient the clip removes: below `low` with A < 0, above `high` with A > 0. */
  clips(ratio: Tensor, low: number, high: number, batch: Masked): void {
    noGrad(() => {
      const { dtype } = batch.mask
      const below = ratio.lt(low).logicalAnd(batch.advantages.lt(0))
      const above = ratio.gt(high).logicalAnd(batch.advantages.gt(0))
      const none = batch.tokens.eq(0)
      this.add('clip_ratio/low_mean', meanOf(below.to(dtype), batch))
      this.add('clip_ratio/high_mean', meanOf(above.to(dtype), batch))
      this.add('clip_ratio/region_mean', meanOf(below.logicalOr(above).to(dtype), batch))
      this.add('clip_ratio/low_min', rowsOf(below.to(dtype), batch).maskedFill(none, Number.POSITIVE_INFINITY).min())
      this.add('clip_ratio/high_max', rowsOf(above.to(dtype), batch).maskedFill(none, Number.NEGATIVE_INFINITY).max())
    })
  }

  finish(like: Tensor): { stats: Tensor; metrics: () => Record<string, number> } {
    const names = this.#names
    const stats = noGrad(() => stack([like.detach(), ...this.#values])) // [1 + n]
    const metrics = () => {
      const values = stats.numbers().slice(1)
      // infinity: the extreme of no row
      return Object.fromEntries(names.map((name, i) => [name, Number.isFinite(values[i]!) ? values[i]! : Number.NaN]))
    }
    return { stats, metrics }
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
