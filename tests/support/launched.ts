// Processes that a launcher started, and torchrun as a launcher.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Processes of a launcher, by rank. */
export function ranksOf(launcher: number): Map<number, number> {
  const found = new Map<number, number>()
  for (const pid of readFileSync(`/proc/${launcher}/task/${launcher}/children`, 'utf8').trim().split(' ')) {
    const rank = /(?:^|\0)RANK=(\d+)/.exec(readFileSync(`/proc/${pid}/environ`, 'latin1'))?.[1]
    if (rank !== undefined) found.set(Number(rank), Number(pid))
  }
  return found
}

const folders = (process.env['PATH'] ?? '').split(':')

/** The path of torchrun, if there is one. */
export const torchrun = folders.map((dir) => join(dir, 'torchrun')).find((path) => existsSync(path))

/** Words before the program for two processes of it; Debian's torchrun fails on its own default of redirects. */
export function torchrunFlags(restarts: number): string[] {
  const redirects = ['-r', '9:1', '-t', '9:1']
  return ['--standalone', '--nproc_per_node', '2', '--max_restarts', String(restarts), ...redirects, '--no_python']
}
