import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs'
import { homedir, hostname } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Mismatch } from './errors.ts'

/** Where builds and indexes are kept: ROUNDTRIP_CACHE, else `roundtrip` in the user's cache folder. */
export function cacheFolder(): string {
  if (process.env.ROUNDTRIP_CACHE) return resolve(process.env.ROUNDTRIP_CACHE)
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'roundtrip')
}

/** False also for a link that leads nowhere or to itself. */
export function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}

/** The names in a folder that match, sorted; none if there is no such folder. */
export function namesIn(folder: string, pattern = /(?:)/): string[] {
  const names = isFolder(folder) ? readdirSync(folder) : []
  return names.filter((name) => pattern.test(name)).sort()
}

/** False only if it can be known: a process of this host that is not there. */
export function mayRun(host: string, pid: number): boolean {
  if (host !== hostname()) return true
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** The package folder: the nearest one above this file with native/ and package.json. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url))
  while (!existsSync(join(folder, 'package.json')) || !existsSync(join(folder, 'native'))) {
    const up = dirname(folder)
    if (up === folder)
      throw new Mismatch({ where: 'roundtrip', expected: 'a package folder with native/', got: 'none above the code' })
    folder = up
  }
  return realpathSync(folder)
}
