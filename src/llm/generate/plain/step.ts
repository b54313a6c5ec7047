// Decoding step by step with PyTorch ops, on devices that do not capture CUDA graphs. R rows, S hidden, D head size.
import type { KVCache, RopeTable } from '../../../nn/index.ts'
import { arange, type DType, int64Tensor, keep, type Tensor, tidy, zeros } from '../../../tensor/index.ts'
import type { Decoder } from '../../model.ts'
import type { DecodeStart, Decoding } from '../decoding.ts'
import { columnsOf } from '../fused/packed-cache.ts'
import type { Scores } from '../recorded/draws.ts'

/** Op by op, over the columns in use. What a step needs besides its tokens is computed once for all steps. */
export class DecodeStep implements Decoding {
  readonly #decoder: Decoder
  readonly #cache: KVCache
  /** [steps, R, 1, 1, D] */
  #rope: RopeTable
  readonly #columns: Tensor // [steps] the column each step writes
  /** Added to the scores, [R, 1, 1, capacity]: minus infinity at padding; null if there is none. */
  #padding: Tensor | null
  readonly #start: number
  #step = 0

  constructor(decoder: Decoder, { cache: read, rows, valid, next, columns }: DecodeStart, steps: number) {
    const cache = columnsOf(read)
    const { device } = cache
    if (rows) cache.select(rows)
    this.#decoder = decoder
    this.#cache = cache
    this.#start = columns
    const count = (from: number) => arange(from, from + steps, { dtype: 'int64', device })
    const { cos, sin } = tidy(() => {
      const first = int64Tensor(next, { device }) // [R]
      return decoder.stepRotations(count(0).unsqueeze(1).add(first))
    })
    this.#rope = { cos: keep(cos), sin: keep(sin) }
    this.#columns = keep(count(columns))
    this.#padding = valid && keep(tidy(() => paddingOf(valid, cache.capacity, decoder.placement.dtype)))
  }

  run(ids: readonly number[]): Scores {
    const at = this.#step++
    const length = this.#start + at + 1
    return tidy(() => {
      const decoder = this.#decoder
      const { device } = this.#cache
      const x = decoder.embed(int64Tensor(ids, [ids.length, 1], { device })) // [R, 1, S]
      const rope = { cos: this.#rope.cos.select(0, at), sin: this.#rope.sin.select(0, at) }
      const columns = this.#columns.slice({ dim: 0, start: at, end: at + 1 })
      const mask = this.#padding?.slice({ dim: 3, end: length })
      const hidden = decoder.forward(x, { rope, mask, cache: this.#cache, columns, length }).squeeze(1)
      return { hidden, logits: decoder.logits(hidden) }
    })
  }

  keepRows(rows: readonly number[]): void {
    const index = int64Tensor(rows, { device: this.#cache.device })
    const kept = (t: Tensor, dim: number) => {
      const picked = keep(t.indexSelect(dim, index))
      t.dispose()
      return picked
    }
    this.#cache.select(index)
    this.#rope = { cos: kept(this.#rope.cos, 1), sin: kept(this.#rope.sin, 1) }
    this.#padding &&= kept(this.#padding, 0)
    index.dispose()
  }

  dispose(): void {
    for (const t of [this.#rope.cos, this.#rope.sin, this.#columns, this.#padding]) t?.dispose()
  }
}

/** valid [R, columns] -> [R, 1, 1, capacity] */
function paddingOf(valid: Tensor, capacity: number, dtype: DType): Tensor {
  const [rows, used] = valid.shape as [number, number]
  const added = zeros([rows, 1, 1, capacity], { dtype, device: valid.device })
  const prompt = added.slice({ dim: 3, end: used })
  prompt.copy_(prompt.maskedFill(valid.view([rows, 1, 1, used]).logicalNot(), Number.NEGATIVE_INFINITY))
  return added
}
