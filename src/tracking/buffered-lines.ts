import { diskTrouble, log } from '../core/index.ts'
import { JsonLines, lineBytes } from './json-lines.ts'

/** Lines that wait for room take at most this much memory; what comes after is counted and dropped. */
const maxWaitingBytes = 64 * 2 ** 20

/**
 * A log that does not end a run when the disk is full or fails: lines that cannot be written wait in memory, in order, and
 * go out with the next line that can. Steps cost more than log lines.
 */
export class BufferedLines extends JsonLines {
  #waiting: Uint8Array[] = []
  #waitingBytes = 0
  /** Lines for which not even memory was left; they are nowhere. */
  lost = 0
  readonly #maxBytes: number

  constructor(path: string, maxBytes = maxWaitingBytes) {
    super(path)
    this.#maxBytes = maxBytes
  }

  /** Lines that are not in the file yet. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** How many earlier lines went out with these: 0 on a disk with room. */
  put(...values: readonly unknown[]): number {
    const lines = values.map(lineBytes)
    const late = this.#waiting.length
    try {
      this.appendBytes([...this.#waiting, ...lines])
    } catch (error) {
      const reason = diskTrouble(error)
      if (!reason) throw error
      this.#keep(lines, reason)
      return 0
    }
    this.#waiting = []
    this.#waitingBytes = 0
    return late
  }

  #keep(lines: readonly Uint8Array[], reason: string): void {
    if (this.#waiting.length === 0) {
      log.warn(`${this.path}: ${reason}; its lines wait in memory and the run continues: check the disk`)
    }
    for (const line of lines) {
      if (this.#waitingBytes + line.length > this.#maxBytes) this.lost++
      else this.#waiting.push(line)
      this.#waitingBytes += line.length
    }
  }
}
