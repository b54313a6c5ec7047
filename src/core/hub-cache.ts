// The cache of the Hugging Face hub: models--ORG--NAME or datasets--ORG--NAME with blobs, snapshots by commit, and refs.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { Mismatch } from './errors.ts'

export type HubKind = 'models' | 'datasets'

export function hubHome(): string {
  return process.env.HF_HOME || join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'huggingface')
}

/** Folder of all repositories. */
export function hubFolder(): string {
  return process.env.HF_HUB_CACHE || join(hubHome(), 'hub')
}

/** Whether a text can be the id of a repository: ORG/NAME, or NAME alone for a few old datasets. */
export const isHubId = (id: string): boolean => /^[\w.-]+(?:\/[\w.-]+)?$/.test(id) && !/^\.+$|^\.+\/|\/\.+$/.test(id)

export function repositoryFolder(kind: HubKind, id: string): string {
  return join(hubFolder(), `${kind}--${id.replaceAll('/', '--')}`)
}

/** The snapshot of an id that `refs/main` names, or the only one; null if it was never downloaded. */
export function hubSnapshotOf(kind: HubKind, id: string): string | null {
  const repository = repositoryFolder(kind, id)
  const snapshots = join(repository, 'snapshots')
  if (!existsSync(snapshots)) return null
  const fail = (got: string, hint?: string) =>
    new Mismatch({ where: id, expected: `one snapshot in ${snapshots}`, got, hint })
  const main = join(repository, 'refs', 'main')
  if (existsSync(main)) {
    const commit = readFileSync(main, 'utf8').trim()
    if (/^\w+$/.test(commit) && existsSync(join(snapshots, commit))) return join(snapshots, commit)
    throw fail(`refs/main names ${JSON.stringify(commit.slice(0, 80))}, which is not in ${snapshots}`)
  }
  const commits = readdirSync(snapshots)
  if (commits.length === 1) return join(snapshots, commits[0]!)
  const paths = commits.map((c) => join(snapshots, c)).join(', ')
  throw fail(`${commits.length} snapshots and no refs/main`, `name one: ${paths}`)
}

/** The folder of a model: the snapshot if the path is an id in the cache, else the path. */
export function modelFolder(path: string): string {
  if (path === '' || existsSync(path) || !isHubId(path) || !path.includes('/')) return path
  return hubSnapshotOf('models', path) ?? path
}
