/** The UTF-16 units of a text. */
export function unitsOf(text: string): Uint16Array {
  return Uint16Array.from({ length: text.length }, (_, i) => text.charCodeAt(i))
}

/** A trie over small numbers (bytes, UTF-16 units, code points): one map of edges instead of one object a node. */
export class SymbolTrie {
  readonly #edges = new Map<number, number>()
  readonly #values = new Map<number, number>()
  #nodes = 1

  add(sequence: Iterable<number>, value: number): void {
    let node = 0
    for (const unit of sequence) {
      const key = edge(node, unit)
      let next = this.#edges.get(key)
      if (next === undefined) {
        next = this.#nodes++
        this.#edges.set(key, next)
      }
      node = next
    }
    this.#values.set(node, value)
  }

  /** The node after `node` (0 is the root) along a unit. */
  next(node: number, unit: number): number | undefined {
    return this.#edges.get(edge(node, unit))
  }

  valueAt(node: number): number | undefined {
    return this.#values.get(node)
  }

  /** Units of the longest sequence that begins at a position, or 0. */
  longest(input: ArrayLike<number>, at: number): number {
    let length = 0
    let node: number | undefined = 0
    for (let i = at; i < input.length; i++) {
      node = this.next(node, input[i]!)
      if (node === undefined) break
      if (this.#values.has(node)) length = i + 1 - at
    }
    return length
  }
}

const edge = (node: number, unit: number) => node * 0x110000 + unit
