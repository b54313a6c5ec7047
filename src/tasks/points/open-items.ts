import { keep } from '../../tensor/index.ts'
import type { WorkItem } from '../kind.ts'
import { openItem, type PointItem, type PointSetup, releaseItem, tensorsOfItem } from './item.ts'
import { pointRecord } from './records.ts'

/** Items that are in work, or were a moment ago: read once, however often a step asks. */
export class OpenItems {
  readonly #setup: PointSetup
  readonly #open = new Map<string, PointItem>()
  readonly #maxOpen: number

  constructor(setup: PointSetup, maxOpen: number) {
    this.#setup = setup
    this.#maxOpen = maxOpen
  }

  /** The items of a call stay open together, however many they are; those of earlier calls make room, the oldest first. */
  all(work: readonly WorkItem[]): PointItem[] {
    const asked = new Set(work.map(({ id }) => id))
    const missing = [...asked].filter((id) => !this.#open.has(id)).length
    const limit = Math.max(this.#maxOpen, asked.size)
    for (const [id, item] of this.#open) {
      if (this.#open.size + missing <= limit) break
      if (asked.has(id)) continue
      this.#open.delete(id)
      releaseItem(this.#setup, item)
    }
    return work.map((one) => this.#at(one))
  }

  #at({ id, example }: WorkItem): PointItem {
    const known = this.#open.get(id)
    const item = known ?? openItem(this.#setup, pointRecord(example))
    if (!known) for (const t of tensorsOfItem(this.#setup, item)) keep(t) // the item outlives the current scope
    this.#open.delete(id) // the last one used is the last in order
    this.#open.set(id, item)
    return item
  }

  close(): void {
    for (const item of this.#open.values()) releaseItem(this.#setup, item)
    this.#open.clear()
  }
}
