// The torchrun that started this process may be of another torch. Processes then meet at their own store, and the log says so.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { log } from '../core/index.ts'
import { native } from '../engine/index.ts'
import type { Rank } from './environment.ts'

/** Processes above this one that are searched for torchrun: npx and a shell may be between. */
const maxLevels = 6

/** Version of torch of the torchrun above this process; null: there is none, or it cannot be found out. */
export function torchrunVersion(parent = process.ppid): string | null {
  try {
    for (let [pid, level] = [parent, 0]; pid > 1 && level < maxLevels; level++) {
      const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
      if (words.some((word) => /\btorchrun$|^torch\.distributed\.(run|launch)$/.test(word))) return versionOf(words[0]!)
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      pid = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
    }
  } catch {
    // a system without /proc, or a parent that may not be read
  }
  return null
}

function versionOf(python: string): string | null {
  // '' is the current folder, whose Python files are not ours to run
  const code =
    "import sys; sys.path.remove('') if '' in sys.path else 0; from importlib.metadata import version; print(version('torch'))"
  return spawnSync(python, ['-c', code], { encoding: 'utf8', timeout: 10_000 }).stdout?.trim() || null
}

/** Rank 0 reports for all. */
export function reportTorchrun({ source, rank, meeting }: Rank): void {
  if (source !== 'torchrun' || rank > 0 || meeting?.kind !== 'tcp') return
  const [theirs, own] = [torchrunVersion(), native().info().version]
  if (theirs === null || theirs.split('+')[0] === own.split('+')[0]) return
  log.warn(
    `torchrun has torch ${theirs}, this engine torch ${own}: processes meet at their own store, port ${meeting.port}`,
  )
}
