// Updates that `onNonFinite skip` leaves out.
import { Mismatch, messageOf } from '../core/index.ts'
import { exitCodes } from '../distributed/index.ts'
import { NonFinite } from '../rl/index.ts'
import type { RunConfig } from './config.ts'
import type { Notices } from './notices.ts'

/** Abort after this many skipped updates in a row: a run that never learns looks like one that does. */
const maxInRow = 3

/** A run without progress. */
export function endlessRun(where: string, got: string, hint: string): Mismatch {
  const error = new Mismatch({ where, field: 'learning', expected: 'steps that learn something', got, hint })
  return Object.assign(error, { exitCode: exitCodes.nonFinite })
}

export class SkippedUpdates {
  readonly #command: string
  readonly #run: { config: Pick<RunConfig, 'onNonFinite'>; notices: Pick<Notices, 'report'> }
  #inRow = 0

  constructor(command: string, run: { config: Pick<RunConfig, 'onNonFinite'>; notices: Pick<Notices, 'report'> }) {
    this.#command = command
    this.#run = run
  }

  applied(): void {
    this.#inRow = 0
  }

  /** Reports the update of `step` as skipped, or throws `error` if it must not be skipped. */
  skip(step: number, error: unknown): void {
    if (!(error instanceof NonFinite) || this.#run.config.onNonFinite === 'stop') throw error
    const reason = messageOf(error)
    this.#run.notices.report({ kind: 'non-finite', text: `step ${step}: update skipped: ${reason}` })
    if (++this.#inRow >= maxInRow) throw endlessRun(this.#command, `${maxInRow} updates in a row skipped`, reason)
  }
}
