// Datasets that were downloaded before, by their id. The network is never used.
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { hubFolder, hubHome, hubSnapshotOf, isHubId, Mismatch } from '../../core/index.ts'
import { hasArrow } from './arrow-folder.ts'

function missing(id: string, got: string, hint?: string): Mismatch {
  return new Mismatch({ where: id, expected: 'a path, or the id of a dataset in the Hugging Face cache', got, hint })
}

const passedOver = /\.(incomplete|lock)$|^tmp/

/** Folders with shards below CONFIG/VERSION/HASH of the `datasets` cache. */
function shardFolders(folder: string, depth = 0): string[] {
  if (hasArrow(folder)) return [folder]
  if (depth === 4) return []
  return readdirSync(folder)
    .filter((name) => !passedOver.test(name) && statSync(join(folder, name)).isDirectory())
    .sort()
    .flatMap((name) => shardFolders(join(folder, name), depth + 1))
}

function datasetsFolder(): string {
  return process.env.HF_DATASETS_CACHE || join(hubHome(), 'datasets')
}

/** `refCOCOg` is `ref_coc_og`: how `datasets` writes the name of a builder. */
function snakeCase(name: string): string {
  return name
    .replace(/([A-Z]+)([A-Z][a-z])/g, '$1_$2')
    .replace(/([a-z\d])([A-Z])/g, '$1_$2')
    .toLowerCase()
}

/** Folder of shards that `load_dataset(id)` left in its cache (ORG___NAME); null when there is none. */
function preparedOf(id: string): string | null {
  const plain = id.replace('/', '___')
  const owner = id.slice(0, id.indexOf('/') + 1)
  const name = owner.replace('/', '___') + snakeCase(id.slice(owner.length))
  // older versions write all of it in lower case
  const root = [name, plain, plain.toLowerCase()].map((n) => join(datasetsFolder(), n)).find((path) => existsSync(path))
  if (root === undefined) return null
  const found = shardFolders(root)
  if (found.length === 1) return found[0]!
  if (found.length === 0) return null
  throw missing(id, `${found.length} configurations in ${root}`, `name one: ${found.join(', ')}`)
}

/** The folder of a dataset's id: a snapshot of the hub, or what `datasets` prepared from it. */
export function hubSnapshot(id: string): string {
  if (!isHubId(id)) throw missing(id, 'no such file or folder')
  const found = hubSnapshotOf('datasets', id) ?? preparedOf(id)
  if (found !== null) return found
  const looked = [hubFolder(), datasetsFolder()]
  const hint = `download it first (npx roundtrip-rl pull ${id} --dataset), or name the folder`
  throw missing(id, `no such path, and nothing of that name in ${looked.join(' or ')}`, hint)
}
