import { buffer, type DType, dtypeCodes, native } from '../engine/index.ts'
import { type Tensor, tensorOfHandle } from './tensor.ts'

/** A file mapped into memory; its tensors read straight from the page cache and stay valid after close(). */
export class MappedFile {
  readonly #map: number
  readonly size: number

  constructor(path: string) {
    this.#map = native().mapOpen(path)
    this.size = native().mapSize(this.#map)
  }

  /** Writes to such a tensor stay private to the process. An offset that is not a multiple of the element size is copied. */
  tensor(offset: number, shape: readonly number[], dtype: DType): Tensor {
    buffer[0] = this.#map
    buffer[1] = offset
    buffer[2] = dtypeCodes[dtype]
    buffer[3] = shape.length
    shape.forEach((n, i) => {
      buffer[4 + i] = n
    })
    native().mapTensor()
    return tensorOfHandle(buffer[0]!)
  }

  close(): void {
    native().mapClose(this.#map)
  }
}
