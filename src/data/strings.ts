/** Many short strings in two typed arrays: about their own bytes plus 8 each, instead of an object each. */
export class PackedStrings {
  readonly #bytes: Buffer
  readonly #ends: Float64Array

  constructor(values: readonly string[]) {
    this.#bytes = Buffer.from(values.join(''))
    this.#ends = new Float64Array(values.length)
    let end = 0
    values.forEach((value, i) => {
      end += Buffer.byteLength(value)
      this.#ends[i] = end
    })
  }

  get length(): number {
    return this.#ends.length
  }

  at(index: number): string {
    return this.#bytes.toString('utf8', index === 0 ? 0 : this.#ends[index - 1]!, this.#ends[index]!)
  }
}
