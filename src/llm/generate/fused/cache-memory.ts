import { type DType, keep, type Tensor, zeros } from '../../../tensor/index.ts'

/** Who has views of a memory, and recordings bound to where it is. */
export interface CacheUser {
  readonly busy: boolean
  /** Gives up everything that points into the memory, which is about to go. */
  unbind(): void
}

/** Spare room of a new allocation, so that slightly longer prompts do not need another. */
export const cacheSpare = 1.1

/**
 * One memory for the caches of several decode states, of which one at a time decodes. It is as large as the largest asked for; before it
 * makes way for a larger one everybody gives up what points into it, and it goes with its last user.
 */
export class CacheMemory {
  readonly #placement: { device: string; dtype: DType }
  readonly #users = new Set<CacheUser>()
  #memory: Tensor | null = null

  constructor(placement: { device: string; dtype: DType }) {
    this.#placement = placement
  }

  /** Whether one of its users decodes. */
  get busy(): boolean {
    return [...this.#users].some((user) => user.busy)
  }

  get users(): number {
    return this.#users.size
  }

  /** Of bfloat16. */
  get bytes(): number {
    return 2 * (this.#memory?.numel ?? 0)
  }

  join(user: CacheUser): void {
    this.#users.add(user)
  }

  /** [n], at least so many elements; good until `unbind`. What is in it means nothing. */
  get(elements: number): Tensor {
    if (this.#memory && this.#memory.numel >= elements) return this.#memory
    this.#free()
    this.#memory = keep(zeros([Math.ceil(elements * cacheSpare)], this.#placement))
    return this.#memory
  }

  leave(user: CacheUser): void {
    this.#users.delete(user)
    if (this.#users.size === 0) this.#free()
  }

  #free(): void {
    for (const user of this.#users) user.unbind()
    this.#memory?.dispose()
    this.#memory = null
  }
}
