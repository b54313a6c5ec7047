import { homedir } from 'node:os'
import { join, resolve } from 'node:path'

/** Where builds and indexes are kept: ROUNDTRIP_CACHE, else `roundtrip` in the user's cache folder. */
export function cacheFolder(): string {
  if (process.env.ROUNDTRIP_CACHE) return resolve(process.env.ROUNDTRIP_CACHE)
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'roundtrip')
}
