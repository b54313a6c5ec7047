/** A growing array of integers that is used again for every pair. */
export class Ints {
  data = new Int32Array(256)
  length = 0

  push(value: number): void {
    if (this.length === this.data.length) this.reserve(this.length + 1)
    this.data[this.length++] = value
  }

  /** Room for n values; what is there stays. */
  reserve(n: number): Int32Array {
    if (n > this.data.length) {
      const wider = new Int32Array(Math.max(n, 2 * this.data.length))
      wider.set(this.data)
      this.data = wider
    }
    return this.data
  }
}
