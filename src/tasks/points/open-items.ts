import { keep } from '../../tensor/index.ts'
import type { WorkItem } from '../kind.ts'
import { openAll, type PointItem, type PointSetup, releaseItem, tensorsOfItem } from './item.ts'
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
    const unread = work.filter(({ id }, i) => !this.#open.has(id) && work.findIndex((one) => one.id === id) === i)
    const opened = openAll(
      this.#setup,
      unread.map(({ example }) => pointRecord(example)),
    )
    for (const item of opened) for (const t of tensorsOfItem(this.#setup, item)) keep(t) // it outlives the current scope
    unread.forEach(({ id }, i) => void this.#open.set(id, opened[i]!))
    return work.map(({ id }) => {
      const item = this.#open.get(id)!
      this.#open.delete(id) // the last one used is the last in order
      this.#open.set(id, item)
      return item
    })
  }

  close(): void {
    for (const item of this.#open.values()) releaseItem(this.#setup, item)
    this.#open.clear()
  }
}
