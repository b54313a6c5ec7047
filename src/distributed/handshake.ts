// Ranks compare what must be equal before it can do harm: lists of tensors, settings, weights.
import { sha256 } from '../core/index.ts'
import { Disagreement, Divergence } from './failure.ts'
import type { NamedTensors, World } from './world.ts'

/** One line for each tensor. The first line that differs is reported. */
export async function requireSameLayout(world: World, layout: string): Promise<void> {
  const hashes = await world.gather(sha256(layout))
  const other = hashes.findIndex((hash) => hash !== hashes[0])
  if (other < 0) return
  const all = (await world.gather(layout)).map((text) => text.split('\n'))
  const [ours, theirs] = [all[0]!, all[other]!]
  const at = ours.findIndex((line, i) => line !== theirs[i])
  const first = at < 0 ? ours.length : at
  throw new Disagreement({
    where: `tensors of rank ${other}`,
    field: `entry ${first + 1} of ${theirs.length}`,
    expected: ours[first] ?? 'no more tensors, as on rank 0',
    got: theirs[first] ?? 'no more tensors',
    hint: 'all ranks must open the same model with the same trained groups',
  })
}

/** Settings by key. Keys that may differ between ranks are left out by the caller. */
export async function requireSameSettings(world: World, settings: Readonly<Record<string, unknown>>): Promise<void> {
  const flat = flatten(settings)
  const hashes = await world.gather(sha256(JSON.stringify(flat)))
  const other = hashes.findIndex((hash) => hash !== hashes[0])
  if (other < 0) return
  const all = await world.gather(flat)
  const [ours, theirs] = [all[0]!, all[other]!]
  const key = [...Object.keys(ours), ...Object.keys(theirs)].find((name) => ours[name] !== theirs[name])!
  const hint = 'start every rank with the same command on the same model and data'
  throw new Disagreement({
    where: `settings of rank ${other}`,
    field: key,
    expected: ours[key] ?? 'unset',
    got: theirs[key] ?? 'unset',
    hint,
  })
}

/** 'rl.beta' -> its value as JSON, keys in order. */
function flatten(value: unknown, path = '', out: Record<string, string> = {}): Record<string, string> {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    out[path] = JSON.stringify(value ?? null)
    return out
  }
  for (const [key, inner] of Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
    flatten(inner, path ? `${path}.${key}` : key, out)
  return out
}

/** Weights that every rank updated by itself must still be the same bits. Names the first tensor that is not. */
export async function requireSameValues(world: World, tensors: NamedTensors, what: string): Promise<void> {
  if (world.size === 1) return // hashing is not free
  const hashes = [...tensors].map(([, tensor]) => {
    const { buffer, byteOffset, byteLength } = tensor.array()
    return sha256(new Uint8Array(buffer, byteOffset, byteLength))
  })
  const totals = await world.gather(sha256(hashes.join()))
  const other = totals.findIndex((total) => total !== totals[0])
  if (other < 0) return
  const all = await world.gather(hashes)
  const at = all[0]!.findIndex((hash, i) => hash !== all[other]![i])
  const name = [...tensors.keys()][at]
  throw new Divergence(
    `${what}: ${name} of rank ${other} is not that of rank 0, although both applied the same updates`,
  )
}
