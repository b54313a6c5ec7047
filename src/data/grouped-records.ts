import { assert, firstIndex } from '../core/index.ts'

/** Records that are numbered through groups (batches, shards, rows, samples) of different sizes. */
export class GroupedRecords {
  readonly length: number
  /** First record of each group, and the end. */
  readonly #starts: Float64Array

  constructor(counts: ArrayLike<number>) {
    this.#starts = new Float64Array(counts.length + 1)
    for (let i = 0; i < counts.length; i++) this.#starts[i + 1] = this.#starts[i]! + counts[i]!
    this.length = this.#starts[counts.length]!
  }

  /** The group of a record, and its position in the group. */
  find(index: number): [group: number, position: number] {
    assert(index >= 0 && index < this.length, `record ${index} of ${this.length}`)
    const group = firstIndex(this.#starts.length, (i) => this.#starts[i]! > index) - 1
    return [group, index - this.#starts[group]!]
  }
}
