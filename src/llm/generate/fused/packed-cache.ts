// Keys and values of prompts as they were read: packed rows, of which several prompts may share some. L layers, P prompts, K heads, D head size.
import type { DecodeKernels } from '../../../kernels/index.ts'
import { KVCache } from '../../../nn/index.ts'
import { keep, type Tensor, tensor, tidy } from '../../../tensor/index.ts'

export interface CacheHeads {
  keys: number
  dim: number
}

export class PackedCache {
  /** Of the longest prompt. */
  readonly columns: number
  readonly #rows: Tensor // [L, N, 2K D]
  #at: Tensor // [P * columns]: the row of each column; any where a prompt has ended
  #prompts: number
  readonly #heads: CacheHeads

  /** Takes over `rows` [L, N, 2K D]; `rowsOf`: those of each prompt, in the order of its tokens. */
  constructor(rows: Tensor, rowsOf: readonly (readonly number[])[], heads: CacheHeads) {
    this.#prompts = rowsOf.length
    this.columns = Math.max(...rowsOf.map((own) => own.length))
    this.#heads = heads
    const at = new Int32Array(this.#prompts * this.columns)
    rowsOf.forEach((own, p) => {
      at.set(own, p * this.columns)
    })
    this.#rows = keep(rows)
    this.#at = keep(tensor(at, { device: rows.device }))
  }

  get batch(): number {
    return this.#prompts
  }

  /** More prompts, which mean nothing. */
  fillUp(prompts: number): void {
    const before = this.#at
    this.#at = keep(tidy(() => before.constantPadNd([0, (prompts - this.#prompts) * this.columns])))
    this.#prompts = prompts
    before.dispose()
  }

  /** [L, 2, P, K, columns, D] */
  #ordered(): Tensor {
    const { keys: K, dim: D } = this.#heads
    const picked = this.#rows.indexSelect(1, this.#at)
    return picked.view([-1, this.batch, this.columns, 2, K, D]).permute([0, 3, 1, 4, 2, 5])
  }

  /** Writes the first columns of keys and values [L, 2, P, K, room, D]. */
  copyInto(all: Tensor, kernels: DecodeKernels | null = null): void {
    if (kernels) kernels.placePrompts(this.#rows, this.#at, this.columns, all)
    else tidy(() => void all.slice({ dim: 4, end: this.columns }).copy_(this.#ordered()))
  }

  /** The same as a separate cache. */
  unpacked(): KVCache {
    return tidy(() => {
      const layers = this.#ordered().unbind({ dim: 0 })
      const part = (i: number) => layers.map((t) => t.select(0, i))
      return KVCache.of(part(0), part(1))
    })
  }

  dispose(): void {
    this.#rows.dispose()
    this.#at.dispose()
  }
}

/** A cache with columns for each prompt: the given one, or one that belongs to the caller. */
export function columnsOf(cache: KVCache | PackedCache): KVCache {
  return cache instanceof PackedCache ? cache.unpacked() : cache
}
