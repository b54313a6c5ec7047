// Node opens many modules at once; under a small limit its loader ends in the middle of a file's name.
import { readFileSync } from 'node:fs'

/** A training run was seen to need between 64 and 100. */
const least = 256

/** Why a limit of open files, as /proc/self/limits tells it, is too small; null: it is not, or nobody knows. */
export function tooFewFiles(limits) {
  const got = /^Max open files\s+(\d+)/m.exec(limits)?.[1]
  if (got === undefined || Number(got) >= least) return null
  return `roundtrip: open files: expected a limit of at least ${least}, got ${got}. raise it: ulimit -n 1024`
}

/** Ends the program in words where the limit is too small. */
export function requireOpenFiles() {
  let limits = ''
  try {
    limits = readFileSync('/proc/self/limits', 'utf8')
  } catch {
    return // a system without it
  }
  const reason = tooFewFiles(limits)
  if (reason === null) return
  process.stderr.write(`error: ${reason}\n`)
  process.exit(1)
}
