import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { atomicWrite, Mismatch, makeFolder } from '../core/index.ts'
import { sourceBytes, type TensorSource, writeSafetensors } from './safetensors.ts'

interface ShardOptions {
  /** Hugging Face's '5GB'. */
  maxShardBytes?: number
  metadata?: Readonly<Record<string, string>>
}

/** Writes model.safetensors, or shards and their index when one file would pass the limit. The folder must not hold
 * model weights yet: a half-replaced set of shards could not be told from a whole one. Returns the files' names. */
export function writeWeights(dir: string, entries: Iterable<TensorSource>, options: ShardOptions = {}): string[] {
  const { maxShardBytes = 5e9, metadata } = options
  makeFolder(dir)
  const old = readdirSync(dir).find((name) => /^model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?$/.test(name))
  if (old) throw new Mismatch({ where: dir, expected: 'a folder without model weights', got: old })
  const { shards, total } = splitShards(dir, entries, maxShardBytes)
  const files = shards.map((_, i) => shardName(i, shards.length))
  shards.forEach((shard, i) => {
    writeSafetensors(join(dir, files[i]!), shard, metadata)
  })
  if (shards.length === 1) return files
  writeIndex(join(dir, 'model.safetensors.index.json'), shards, files, total)
  return [...files, 'model.safetensors.index.json']
}

function shardName(i: number, count: number): string {
  const digits = (n: number) => String(n).padStart(5, '0')
  return count === 1 ? 'model.safetensors' : `model-${digits(i + 1)}-of-${digits(count)}.safetensors`
}

/** Hugging Face's rule: in the given order; a tensor over the limit gets its own shard, the open shard continues. */
function splitShards(where: string, entries: Iterable<TensorSource>, most: number) {
  const shards: TensorSource[][] = []
  let open: TensorSource[] = []
  let size = 0
  let total = 0
  for (const source of entries) {
    const bytes = sourceBytes(where, source)
    total += bytes
    if (bytes > most) {
      shards.push([source])
      continue
    }
    if (size + bytes > most) {
      shards.push(open)
      open = []
      size = 0
    }
    open.push(source)
    size += bytes
  }
  if (open.length > 0 || shards.length === 0) shards.push(open)
  return { shards, total }
}

function writeIndex(path: string, shards: readonly TensorSource[][], files: readonly string[], total: number): void {
  const pairs = shards.flatMap((shard, i) => shard.map((source): [string, string] => [source.name, files[i]!]))
  const twice = pairs.length - new Set(pairs.map(([name]) => name)).size
  if (twice > 0) throw new Mismatch({ where: path, expected: 'each tensor once', got: `${twice} names twice` })
  pairs.sort(([a], [b]) => (a < b ? -1 : 1))
  const index = { metadata: { total_size: total }, weight_map: Object.fromEntries(pairs) }
  atomicWrite(path, `${JSON.stringify(index, null, 2)}\n`)
}
