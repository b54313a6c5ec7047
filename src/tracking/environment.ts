import { existsSync, readFileSync, statSync } from 'node:fs'
import { arch, cpus, hostname, platform, release, totalmem } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { packageRoot } from '../core/index.ts'

export interface EnvironmentFacts {
  /** Words of the command line. The engine thread has none: whoever starts it passes them on. */
  command?: readonly string[]
  /** Version of the torch that the addon was built with; null: unknown. */
  torch: string | null
  [fact: string]: unknown
}

/** What the run ran on, for environment.json; `facts` adds what only the engine knows (device, dtype). */
export function describeEnvironment(facts: EnvironmentFacts): Record<string, unknown> {
  const root = packageRoot()
  const { command = process.argv.slice(2), torch, ...more } = facts
  return {
    product: productVersion(root),
    commit: gitCommit(root) ?? null,
    node: process.version,
    torch,
    system: `${platform()} ${arch()} ${release()}`,
    host: hostname(),
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryBytes: totalmem(),
    command: command.map(withoutSecret),
    ...more,
  }
}

function productVersion(root: string): string {
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version?: string }
  return version ?? 'unknown'
}

/** A key in the query of an address, or user and password in front of its host, stay out of the file. */
function withoutSecret(word: string): string {
  return word
    .replace(/(\/\/)[^/\s]+@/g, '$1***@')
    .replace(/([?&;][^=&;\s]*(?:key|token|secret|password|sig)[^=&;\s]*=)[^&;\s]+/gi, '$1***')
    .replace(/^(--\S*(?:key|token|secret|password)=)\S+/i, '$1***')
}

/** The commit that a checkout is at, read from its files; undefined outside of one. */
export function gitCommit(folder: string): string | undefined {
  try {
    const git = gitFolder(folder)
    if (!git) return undefined
    const head = readFileSync(join(git, 'HEAD'), 'utf8').trim()
    const ref = /^ref: (.+)$/.exec(head)?.[1]
    if (!ref) return isHash(head) ? head : undefined
    const common = existsSync(join(git, 'commondir'))
      ? resolve(git, readFileSync(join(git, 'commondir'), 'utf8').trim())
      : git
    const path = join(common, ref)
    const found = existsSync(path) ? readFileSync(path, 'utf8').trim() : packedRef(join(common, 'packed-refs'), ref)
    return found && isHash(found) ? found : undefined
  } catch {
    return undefined // a damaged or foreign .git does not prevent training
  }
}

const isHash = (text: string) => /^[0-9a-f]{40,64}$/.test(text)

/** .git is a folder, or in a linked worktree a file that names one. */
function gitFolder(folder: string): string | undefined {
  const path = join(folder, '.git')
  const found = statSync(path, { throwIfNoEntry: false })
  if (!found) return undefined
  if (found.isDirectory()) return path
  const target = /^gitdir: (.+)$/m.exec(readFileSync(path, 'utf8'))?.[1]
  return target && resolve(dirname(path), target)
}

function packedRef(path: string, ref: string): string | undefined {
  if (!existsSync(path)) return undefined
  const lines = readFileSync(path, 'utf8').split('\n')
  return lines.find((line) => line.endsWith(` ${ref}`))?.split(' ')[0]
}
