import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { cacheFolder, Mismatch, packageRoot, sha256 } from '../core/index.ts'

/** What scripts/setup.mjs wrote about the build of this checkout and torch; dev/engine.md has the layout. */
export interface BuildRecord {
  addon: string
  torchVersion: string
  torchPath: string
  kind: string
  cuda: boolean
  flags: string[]
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
  const hint = 'run `npx roundtrip-rl setup` once'
  throw new Mismatch({ where: 'engine', expected: 'a built addon', got: path ?? 'none', hint })
}
