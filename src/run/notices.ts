// What a user should know: settings worth a warning, facts about the data, things that happen on the way. One list, each reported once:
// on the terminal, as a warning event, in the report.
import type { WarningEvent } from '../tracking/index.ts'
import type { RunLog } from './folder.ts'
import type { Host } from './host.ts'

/** A warning without its step; `count` is 1 unless given. */
export type Notice = Pick<WarningEvent, 'kind' | 'text' | 'samples'> & Partial<Pick<WarningEvent, 'count'>>

export class Notices {
  readonly #host: Pick<Host, 'progress'>
  #writer: RunLog | null = null
  #step = 0
  readonly #waiting: Notice[] = []

  constructor(host: Pick<Host, 'progress'>) {
    this.#host = host
  }

  /** From here on warnings go into the run folder too. `fresh`: those reported before the folder was open are written now. */
  open(writer: RunLog, fresh: boolean): void {
    this.#writer = writer
    if (fresh) for (const notice of this.#waiting) this.#write(notice)
    this.#waiting.length = 0
  }

  at(step: number): void {
    this.#step = step
  }

  report(notice: Notice): void {
    this.#host.progress({ kind: 'warning', text: notice.text })
    if (this.#writer) this.#write(notice)
    else this.#waiting.push(notice)
  }

  #write({ kind, text, count, samples }: Notice): void {
    this.#writer!.warning(this.#step, kind, text, count ?? 1, samples)
  }
}
