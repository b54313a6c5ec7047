import { firstIndex } from '../core/index.ts'

type Typed = Float64Array | Float32Array | Uint32Array | Uint16Array

/** A typed array that grows at its end: half a million samples as numbers, not as half a million objects. */
export class Growing<T extends Typed> {
  #values: T
  #length = 0
  readonly #make: (length: number) => T

  constructor(make: (length: number) => T) {
    this.#make = make
    this.#values = make(256)
  }

  get length(): number {
    return this.#length
  }

  push(value: number): void {
    if (this.#length === this.#values.length) {
      const larger = this.#make(Math.ceil(this.#values.length * 1.5))
      larger.set(this.#values)
      this.#values = larger
    }
    this.#values[this.#length++] = value
  }

  at(index: number): number {
    return this.#values[index]!
  }

  /** Keeps the first `length` values. */
  cut(length: number): void {
    this.#length = Math.min(this.#length, length)
  }

  /** The values as they lie in memory; valid until the next push. */
  view(): T {
    return this.#values.subarray(0, this.#length) as T
  }

  /** How many values at the start are below `limit`, in an array that rises. */
  countBelow(limit: number): number {
    return firstIndex(this.#length, (i) => this.#values[i]! >= limit)
  }
}

export const float64 = () => new Growing((n) => new Float64Array(n))
export const float32 = () => new Growing((n) => new Float32Array(n))
export const uint32 = () => new Growing((n) => new Uint32Array(n))
export const uint16 = () => new Growing((n) => new Uint16Array(n))
