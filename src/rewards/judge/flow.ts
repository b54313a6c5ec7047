// Limits on requests: how many at a time and per minute. None is sent while the server asks for a pause, or for a while after
// several failures in a row.

import { pause } from '../../core/index.ts'

/** At most `limit` tasks at a time, first come first served. */
export class Gate {
  readonly #limit: number
  #running = 0
  readonly #waiting: (() => void)[] = []
  #head = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  async run<T>(task: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#limit) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    else this.#running++
    try {
      return await task()
    } finally {
      this.#release()
    }
  }

  /** The place goes to the next in line without being given back in between. */
  #release(): void {
    const next = this.#waiting[this.#head]
    if (!next) {
      this.#running--
      return
    }
    this.#head++
    if (this.#head > 1024 && this.#head * 2 > this.#waiting.length) {
      this.#waiting.splice(0, this.#head)
      this.#head = 0
    }
    next()
  }
}

/** Spaces requests out, and holds all of them while the server wants a pause. */
export class Pacer {
  readonly #intervalMs: number
  #nextAt = 0
  #pausedUntil = 0

  constructor(requestsPerMinute: number) {
    this.#intervalMs = requestsPerMinute > 0 ? 60_000 / requestsPerMinute : 0
  }

  pause(ms: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, performance.now() + ms)
  }

  async turn(): Promise<void> {
    const now = performance.now()
    const slot = Math.max(now, this.#nextAt)
    if (this.#intervalMs > 0) this.#nextAt = slot + this.#intervalMs
    if (slot > now) await pause(slot - now)
    for (let left = this.#pausedUntil - performance.now(); left > 0; left = this.#pausedUntil - performance.now())
      await pause(left)
  }
}

export type Admission = 'pass' | 'probe' | 'refused'

/** Closed: calls pass. Open: they are refused. After `openMs` one probe passes and decides. */
export class Breaker {
  readonly #limit: number
  readonly #openMs: number
  #failures = 0
  #openedAt: number | undefined
  #probing = false
  /** How often it has opened. */
  opened = 0

  constructor(limit: number, openMs: number) {
    this.#limit = limit
    this.#openMs = openMs
  }

  admit(): Admission {
    if (this.#openedAt === undefined) return 'pass'
    if (this.#probing || performance.now() - this.#openedAt < this.#openMs) return 'refused'
    this.#probing = true
    return 'probe'
  }

  succeed(): void {
    this.#failures = 0
    this.#openedAt = undefined
    this.#probing = false
  }

  fail(as: Admission): void {
    this.#failures++
    const opens = this.#openedAt === undefined && this.#failures >= this.#limit
    if (as !== 'probe' && !opens) return
    this.#openedAt = performance.now()
    this.#probing = false
    this.opened++
  }
}
