import { writeSync } from 'node:fs'
import { exitCodes } from '../distributed/index.ts'

/**
 * While a run is under way nobody ends the process with 0: a reward module that calls process.exit() would make it look finished.
 * Gives the function to call when the run has ended.
 */
export function refuseEarlyExit(): () => void {
  const tell = (code: number) => {
    if (code !== 0) return
    process.exitCode = exitCodes.internal
    const hint = 'does a reward, task or data module call process.exit()? The last checkpoint is intact'
    writeSync(2, `error: run: expected to end by itself, got an exit with 0 before its end. ${hint}\n`)
  }
  process.once('exit', tell)
  return () => process.off('exit', tell)
}
