// What records cost: tokens that were decoded for them before. Every process sees the groups of all, so costs are the same everywhere.
import { decodedTokens, type Group } from './group.ts'

export interface StoredCosts {
  known: [string, number][]
  fresh: [string, number][]
}

/** Records that are remembered, the newest ones. */
const maxRecords = 20_000

export class RecordCosts {
  #known = new Map<string, number>()
  /** Measured since `settle`: a generation batch is dealt in one way as long as it is used. */
  #fresh = new Map<string, number>()

  of(record: string): number | undefined {
    return this.#known.get(record)
  }

  measure(groups: readonly Pick<Group, 'item' | 'samples'>[]): void {
    const tokens = new Map<string, number>()
    for (const group of groups) tokens.set(group.item.id, (tokens.get(group.item.id) ?? 0) + decodedTokens(group))
    for (const [id, count] of tokens) this.#fresh.set(id, count)
  }

  /** From now on what was measured decides. */
  settle(): void {
    for (const [id, count] of this.#fresh) {
      this.#known.delete(id)
      this.#known.set(id, count)
    }
    this.#fresh.clear()
    for (const id of this.#known.keys()) {
      if (this.#known.size <= maxRecords) break
      this.#known.delete(id)
    }
  }

  state(): StoredCosts {
    return { known: [...this.#known], fresh: [...this.#fresh] }
  }

  restore({ known, fresh }: StoredCosts): void {
    this.#known = new Map(known)
    this.#fresh = new Map(fresh)
  }
}
