import { type DType, itemBytes, keep, type Tensor, tidy, zeros } from '../tensor/index.ts'

/** Keys and values of past tokens, one pair per layer, allocated once: [B, Hkv, capacity, D]. */
export class KVCache {
  readonly keys: Tensor[]
  readonly values: Tensor[]
  readonly capacity: number

  constructor(
    layers: number,
    shape: { batch: number; heads: number; capacity: number; dim: number },
    like: { dtype: DType; device: string },
    content?: { keys: readonly Tensor[]; values: readonly Tensor[] },
  ) {
    const make = () =>
      keep(zeros([shape.batch, shape.heads, shape.capacity, shape.dim], { dtype: like.dtype, device: like.device }))
    this.keys = content ? content.keys.map((t) => keep(t)) : Array.from({ length: layers }, make)
    this.values = content ? content.values.map((t) => keep(t)) : Array.from({ length: layers }, make)
    this.capacity = shape.capacity
  }

  /** Of keys and values as they are, [B, Hkv, capacity, D] for each layer; they belong to the cache from now on. */
  static of(keys: readonly Tensor[], values: readonly Tensor[]): KVCache {
    const [batch, heads, capacity, dim] = keys[0]!.shape as [number, number, number, number]
    return new KVCache(keys.length, { batch, heads, capacity, dim }, keys[0]!, { keys, values })
  }

  get device(): string {
    return this.keys[0]!.device
  }

  get batch(): number {
    return this.keys[0]!.size(0)
  }

  /** Writes at `positions` (a tensor of column indices, so that a captured step can move them) and returns all columns. */
  put(layer: number, positions: Tensor, key: Tensor, value: Tensor): { key: Tensor; value: Tensor } {
    this.keys[layer]!.indexCopy_(2, positions, key)
    this.values[layer]!.indexCopy_(2, positions, value)
    return { key: this.keys[layer]!, value: this.values[layer]! }
  }

  /** The same content for other rows: the K samples of one prompt share its prefill. */
  select(rows: Tensor): void {
    for (const list of [this.keys, this.values]) {
      list.forEach((t, i) => {
        const picked = keep(tidy(() => t.indexSelect(0, rows)))
        t.dispose()
        list[i] = picked
      })
    }
  }

  get bytes(): number {
    const { numel, dtype } = this.keys[0]!
    return 2 * this.keys.length * numel * itemBytes[dtype]
  }

  /** The first columns of another cache; `rows` chooses among its rows, null takes them all. Columns after them become zero. */
  copyFrom(other: KVCache, columns: number, rows: Tensor | null): void {
    const lists = [
      [this.keys, other.keys],
      [this.values, other.values],
    ] as const
    for (const [mine, theirs] of lists)
      mine.forEach((t, i) => {
        tidy(() => {
          const read = theirs[i]!.slice({ dim: 2, end: columns })
          t.slice({ dim: 2, end: columns }).copy_(rows ? read.indexSelect(0, rows) : read)
          t.slice({ dim: 2, start: columns }).fill_(0) // an old NaN under the mask would still spread
        })
      })
  }

  dispose(): void {
    for (const t of [...this.keys, ...this.values]) t.dispose()
  }
}
