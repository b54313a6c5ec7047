import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cacheFolder, Mismatch, sha256 } from '../core/index.ts'

/** What scripts/setup.mjs wrote about the build of this checkout and torch; docs/engine.md has the layout. */
export interface BuildRecord {
  addon: string
  torchVersion: string
  torchPath: string
  kind: string
  cuda: boolean
  flags: string[]
}

/** The package folder: the nearest one above this file that holds native/ and package.json. */
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

export function buildRecord(): BuildRecord | null {
  const torch = process.env.ROUNDTRIP_TORCH
  const selector = sha256(`${packageRoot()}\n${torch ? resolve(torch) : ''}`).slice(0, 16)
  const path = join(cacheFolder(), 'native', `current-${selector}.json`)
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as BuildRecord) : null
}

/** Where the set-up put the addon of the chosen torch; ROUNDTRIP_ADDON names a file directly. */
export function locateAddon(): string {
  const path = process.env.ROUNDTRIP_ADDON ?? buildRecord()?.addon
  if (path && existsSync(path)) return path
  const hint = 'run `npx roundtrip setup` once'
  throw new Mismatch({ where: 'engine', expected: 'a built addon', got: path ?? 'none', hint })
}
