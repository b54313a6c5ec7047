import type { KVCache } from '../../nn/index.ts'
import { CudaGraph, keep, ones, type Tensor, tensor, tidy, zeros } from '../../tensor/index.ts'
import type { Decoder } from './model.ts'

/**
 * One token for all rows. Everything that changes between steps lives in tensors updated in place, so that on CUDA the whole step
 * is captured once and replayed; on the CPU it runs op by op and looks only at the columns in use.
 */
export class DecodeStep {
  readonly #decoder: Decoder
  readonly #cache: KVCache
  readonly #firstColumn: number
  readonly #token: Tensor // [R, 1]
  readonly #position: Tensor // [R, 1]
  readonly #column: Tensor // [1]
  readonly #visible: Tensor // [R, 1, 1, capacity]
  readonly #masked: boolean
  #captured: { graph: CudaGraph; result: { hidden: Tensor; logits: Tensor } } | undefined
  #t = 0

  /** `next`: the position of each row's first new token. */
  constructor(decoder: Decoder, cache: KVCache, valid: Tensor | null, next: readonly number[], firstColumn: number) {
    const { device } = cache
    const R = next.length
    this.#decoder = decoder
    this.#cache = cache
    this.#firstColumn = firstColumn
    this.#token = keep(zeros([R, 1], { dtype: 'int64', device }))
    this.#position = keep(
      tensor(
        BigInt64Array.from(next, (n) => BigInt(n - 1)),
        [R, 1],
        { device },
      ),
    )
    this.#column = keep(tensor(BigInt64Array.of(BigInt(firstColumn - 1)), { device }))
    this.#visible = keep(tidy(() => startMask(valid, R, firstColumn, cache.capacity, device)))
    this.#masked = valid !== null
  }

  /** Reads one token per row; gives the states where they were read and the scores of the next token. */
  run(ids: readonly number[]): { hidden: Tensor; logits: Tensor } {
    const { device } = this.#cache
    tidy(() => {
      this.#token.copy_(tensor(BigInt64Array.from(ids, BigInt), [ids.length, 1]))
      this.#position.add_(1)
      this.#column.add_(1)
      const at = this.#firstColumn + this.#t
      this.#visible.slice({ dim: 3, start: at, end: at + 1 }).fill_(true)
    })
    this.#t++
    if (!device.startsWith('cuda')) return tidy(() => this.#step(this.#firstColumn + this.#t))
    return this.#replay()
  }

  #step(length: number | undefined): { hidden: Tensor; logits: Tensor } {
    const decoder = this.#decoder
    const x = decoder.embed(this.#token) // [R, 1, S]
    const mask =
      length === undefined ? this.#visible : this.#masked ? this.#visible.slice({ dim: 3, end: length }) : undefined
    const hidden = decoder
      .forward(x, { positions: this.#position, mask, cache: this.#cache, columns: this.#column, length })
      .squeeze(1)
    return { hidden, logits: decoder.logits(hidden) }
  }

  #replay(): { hidden: Tensor; logits: Tensor } {
    if (!this.#captured) {
      this.#captured = CudaGraph.capture(() => this.#step(undefined))
    }
    this.#captured.graph.replay()
    const { hidden, logits } = this.#captured.result
    return { hidden: hidden.clone(), logits: logits.clone() }
  }

  dispose(): void {
    this.#captured?.graph.dispose()
    this.#captured?.result.hidden.dispose()
    this.#captured?.result.logits.dispose()
    for (const t of [this.#token, this.#position, this.#column, this.#visible]) t.dispose()
  }
}

function startMask(valid: Tensor | null, rows: number, used: number, capacity: number, device: string): Tensor {
  const mask = zeros([rows, 1, 1, capacity], { dtype: 'bool', device })
  const prompt = valid ? valid.view([rows, 1, 1, used]) : ones([rows, 1, 1, used], { dtype: 'bool', device })
  mask.slice({ dim: 3, end: used }).copy_(prompt)
  return mask
}
