import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { cacheFolder } from './paths.ts'

/** Where npm packages that a user installs for us are searched: the current project, then the cache folder. */
export const packagePlaces = (): string[] => [process.cwd(), cacheFolder()]

/** The folder of an installed npm package; null: it is in none of the places. */
export function findPackage(name: string): string | null {
  for (const place of packagePlaces()) {
    const plain = join(place, 'node_modules', name)
    if (existsSync(join(plain, 'package.json'))) return plain
    try {
      return dirname(createRequire(join(place, 'package.json')).resolve(`${name}/package.json`))
    } catch {
      // not above this place either
    }
  }
  return null
}
