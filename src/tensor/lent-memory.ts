// Memory that its owner uses at times only: in between others keep tensors there instead of allocating more.
import { empty } from './ops.gen.ts'
import { windowOf } from './products.ts'
import { keep } from './scope.ts'
import type { Tensor, TensorOptions } from './tensor.ts'

type Shape = readonly [rows: number, columns: number]

const lenders = new Set<LentMemory>()

/** Tensors of one borrower, one after the other. */
export class Loan {
  readonly #memory: Tensor
  readonly #ended: () => void
  #used = 0
  #holds = true

  constructor(memory: Tensor, ended: () => void) {
    this.#memory = memory
    this.#ended = ended
  }

  /** False once the owner has written there. */
  get holds(): boolean {
    return this.#holds
  }

  /** How many tensors of `shape` there is room for. */
  roomFor(shape: Shape): number {
    return Math.floor((this.#memory.numel - this.#used) / size(shape))
  }

  /** A tensor of the current scope that begins at 256 bytes, with any values. */
  take(shape: Shape): Tensor {
    const from = this.#used
    this.#used += size(shape)
    return windowOf(this.#memory, shape, [shape[1], 1], from)
  }

  end(): void {
    if (this.#holds) this.#ended()
    this.#holds = false
  }
}

const size = ([rows, columns]: Shape) => Math.ceil((rows * columns) / 128) * 128

export class LentMemory {
  readonly whole: Tensor // [elements]
  #loan: Loan | null = null

  /** Room for matrices of these shapes. */
  constructor(shapes: readonly Shape[], options: TensorOptions) {
    const elements = shapes.reduce((sum, shape) => sum + size(shape), 0)
    this.whole = keep(empty([elements], options))
    lenders.add(this)
  }

  /** Before its owner writes there: what others kept is lost. */
  reclaim(): void {
    this.#loan?.end()
  }

  lend(): Loan | null {
    if (this.#loan) return null
    this.#loan = new Loan(this.whole, () => {
      this.#loan = null
    })
    return this.#loan
  }

  dispose(): void {
    this.reclaim()
    lenders.delete(this)
    this.whole.dispose()
  }
}

/** Nobody will read what any borrower kept. */
export function endLoans(): void {
  for (const lender of lenders) lender.reclaim()
}

/** Memory for tensors like this one until the loan ends; null if nobody lends any. */
export function borrow({ device, dtype }: Pick<Tensor, 'device' | 'dtype'>): Loan | null {
  const lender = [...lenders].find(({ whole }) => whole.device === device && whole.dtype === dtype)
  return lender?.lend() ?? null
}
