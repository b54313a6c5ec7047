import { log } from '../../core/index.ts'

/**
 * Logs why decoding does not use the custom kernels: once per reason, and only for the passes that sample. Other passes, such as a
 * calibration before the first step, may decode in another way than the run does.
 */
export class SlowPathLog {
  readonly #write: (text: string) => void
  readonly #logged = new Set<string>()
  #sampling = false

  constructor(write: (text: string) => void) {
    this.#write = write
  }

  /** Runs `fn`, which samples. */
  whileSampling<R>(fn: () => R): R {
    const outer = this.#sampling
    this.#sampling = true
    try {
      return fn()
    } finally {
      this.#sampling = outer
    }
  }

  note(reason: string): void {
    if (!this.#sampling || this.#logged.has(reason)) return
    this.#logged.add(reason)
    this.#write(`decoding uses PyTorch ops instead of the custom kernels: ${reason}`)
  }
}

export const slowPathLog = new SlowPathLog(log.info)
