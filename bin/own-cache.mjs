// tsx keeps compiled code in a folder of the temporary folder whose name anybody can guess, and runs what it finds there. It may do so
// only where nobody else can write: otherwise it compiles anew each time.
import { lstatSync, mkdirSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'

const writableByOthers = 0o022
const sticky = 0o1000

/** Whether the folder of tsx is ours alone; it is made where it is missing. */
export function hasOwnCache(temporary = tmpdir()) {
  const own = process.getuid?.()
  if (own === undefined) return true
  try {
    const parent = lstatSync(`${temporary}/.`)
    if ((parent.mode & writableByOthers) !== 0 && (parent.mode & sticky) === 0) return false
    const path = join(temporary, `tsx-${userInfo().uid}`)
    mkdirSync(path, { recursive: true, mode: 0o700 })
    const found = lstatSync(path)
    return found.isDirectory() && found.uid === own && (found.mode & writableByOthers) === 0
  } catch {
    return false
  }
}

/** Before tsx is loaded; threads and child processes inherit the answer. */
export function useOwnCache() {
  if (!hasOwnCache()) process.env.TSX_DISABLE_CACHE = '1'
}
