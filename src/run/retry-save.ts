// A checkpoint that waits for its disk: a disk that is full or fails for a minute causes a warning, not the end of the run.
import { diskTrouble, messageOf } from '../core/index.ts'
import type { RunConfig } from './config.ts'
import type { Notice } from './notices.ts'

export interface SaveOptions {
  seconds: number
  /** The run is to end: nothing is waited for. */
  stopping(): boolean
  report(notice: Notice): void
}

/** Seconds between attempts: short ones first. */
const longestPause = 15

/** Of several processes the others wait meanwhile, for as long as they may. */
export function saveTimeoutOf({ saveTimeout, distTimeout }: RunConfig, processes: number): number {
  return processes === 1 ? saveTimeout : Math.min(saveTimeout, distTimeout / 2)
}

/** A limit on the size of files is not lifted by waiting. */
function mayPass(error: unknown): boolean {
  const trouble = diskTrouble(error)
  return trouble !== null && !trouble.includes('EFBIG')
}

export async function retrySave(save: () => void, { seconds, stopping, report }: SaveOptions): Promise<void> {
  const began = performance.now()
  const isOver = () => stopping() || performance.now() - began >= 1000 * seconds
  for (let pause = 1; ; pause = Math.min(2 * pause, longestPause)) {
    try {
      return save()
    } catch (error) {
      if (!mayPass(error) || isOver()) throw error
      if (pause === 1) report({ kind: 'checkpoint-late', text: `${messageOf(error)} (tried again for ${seconds} s)` })
    }
    for (let waited = 0; waited < pause && !isOver(); waited++) await new Promise((done) => setTimeout(done, 1000))
  }
}
