import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { isObject, log, Mismatch, readJsonObject, typeOf } from '../core/index.ts'
import { itemSize } from './dtype.ts'
import { readHeader, readTensorBytes } from './safetensors.ts'
import { readTorch, readTorchBytes, type TorchTensorRange } from './torch-file.ts'

/** Where a tensor's bytes are. A mappable one is row-major at an offset that its element size divides, so that a memory
 * map can serve it; others go through `read`. */
export interface WeightEntry extends Pick<TorchTensorRange, 'dtype' | 'shape' | 'offset' | 'byteLength'> {
  file: string
  mappable: boolean
}

/** The weights of a folder, whatever files hold them. Nothing is loaded before `read`. */
export interface WeightFolder {
  /** The folder, or the file it was opened with. */
  path: string
  files: readonly string[]
  names: readonly string[]
  has(name: string): boolean
  entry(name: string): WeightEntry
  /** Row-major bytes of one tensor, in memory. */
  read(name: string): Uint8Array
  shapes(): Map<string, readonly number[]>
}

export interface StoredTensor {
  entry: WeightEntry
  read(): Uint8Array
}

/** The order of Hugging Face's loader. */
const kinds = ['model.safetensors', 'model.safetensors.index.json', 'pytorch_model.bin', 'pytorch_model.bin.index.json']
const suffixes = ['.safetensors', '.bin', '.pt', '.pth']

/** Opens a folder in Hugging Face's layout, or one weight file or index by its path. */
export function openWeights(path: string): WeightFolder {
  if (!existsSync(path))
    throw new Mismatch({ where: path, expected: 'a folder or a weight file', got: 'nothing there' })
  if (!statSync(path).isDirectory()) return openFile(path, path)
  const [file = trainingFile(path), ...ignored] = kinds.filter((kind) => existsSync(join(path, kind)))
  if (!file) throw new Mismatch({ where: path, expected: `one of ${kinds.join(', ')}`, got: 'none of them' })
  if (ignored.length > 0) log.warn(`${path}: reading ${file}, leaving ${ignored.join(', ')}`)
  return openFile(path, join(path, file))
}

/** A folder may hold the one checkpoint of a training run in the place of released weights. */
function trainingFile(path: string): string | undefined {
  const files = readdirSync(path).filter((name) => /\.pth?$/.test(name))
  return files.length === 1 ? files[0] : undefined
}

function openFile(path: string, file: string): WeightFolder {
  return file.endsWith('.index.json') ? openIndex(path, file) : folderOf(path, [file], slotsOf(file))
}

export function folderOf(
  path: string,
  files: readonly string[],
  slots: ReadonlyMap<string, StoredTensor>,
): WeightFolder {
  const slot = (name: string): StoredTensor => {
    const found = slots.get(name)
    if (!found) throw new Mismatch({ where: path, field: name, expected: 'a tensor of that name', got: 'none' })
    return found
  }
  return {
    path,
    files,
    names: [...slots.keys()],
    has: (name) => slots.has(name),
    entry: (name) => slot(name).entry,
    read: (name) => slot(name).read(),
    shapes: () => new Map(Array.from(slots, ([name, { entry }]) => [name, entry.shape])),
  }
}

/** The same tensors under other names; two that would share one are an error. */
export function renamed(folder: WeightFolder, rename: (name: string) => string): WeightFolder {
  const stored = new Map<string, string>()
  for (const name of folder.names) {
    const other = stored.get(rename(name))
    if (other !== undefined)
      throw new Mismatch({ where: folder.path, field: rename(name), expected: 'one tensor', got: [other, name] })
    stored.set(rename(name), name)
  }
  const slotOf = (name: string) => ({ entry: folder.entry(name), read: () => folder.read(name) })
  return folderOf(folder.path, folder.files, new Map(Array.from(stored, ([name, old]) => [name, slotOf(old)])))
}

function slotsOf(file: string): Map<string, StoredTensor> {
  if (file.endsWith('.safetensors')) return safetensorsSlots(file)
  if (suffixes.some((suffix) => file.endsWith(suffix))) return torchSlots(file)
  throw new Mismatch({ where: file, expected: `a file ending in ${suffixes.join(', ')}`, got: basename(file) })
}

function safetensorsSlots(file: string): Map<string, StoredTensor> {
  const slots = new Map<string, StoredTensor>()
  for (const [name, range] of readHeader(file).tensors) {
    const { begin: offset, end, dtype, shape } = range
    const mappable = offset % itemSize[dtype] === 0
    const entry = { file, offset, byteLength: end - offset, dtype, shape, mappable }
    slots.set(name, { entry, read: () => readTensorBytes(file, range) })
  }
  return slots
}

function torchSlots(file: string): Map<string, StoredTensor> {
  const { tensors, others } = readTorch(file)
  if (others.length > 0)
    log.warn(`${file}: leaving ${others.length} values that are not tensors: ${others.slice(0, 8).join(', ')}`)
  return new Map(Array.from(tensors, ([name, range]) => [name, torchSlot(file, range)]))
}

function torchSlot(file: string, range: TorchTensorRange): StoredTensor {
  const { offset, byteLength, dtype, shape } = range
  const mappable = range.contiguous && offset % itemSize[dtype] === 0
  return { entry: { file, offset, byteLength, dtype, shape, mappable }, read: () => readTorchBytes(file, range) }
}

function openIndex(path: string, index: string): WeightFolder {
  const map = weightMap(index)
  const files = [...new Set(map.values())].sort()
  const shards = new Map(files.map((shard) => [shard, openShard(index, shard)]))
  const slots = new Map<string, StoredTensor>()
  for (const [name, shard] of map) {
    const slot = shards.get(shard)!.get(name)
    if (!slot)
      throw new Mismatch({ where: index, field: name, expected: `a tensor in ${shard}`, got: 'none of that name' })
    slots.set(name, slot)
  }
  addUnindexed(index, map, shards, slots)
  const paths = files.map((shard) => join(dirname(index), shard))
  return folderOf(path, paths, slots)
}

function weightMap(index: string): Map<string, string> {
  const map = readJsonObject(index)['weight_map']
  if (!isObject(map)) throw new Mismatch({ where: index, field: 'weight_map', expected: 'an object', got: typeOf(map) })
  const out = new Map<string, string>()
  for (const [name, shard] of Object.entries(map)) {
    // A shard is a file beside the index; anything that could leave the folder is refused.
    if (typeof shard !== 'string' || !/^[^/\\\u0000]+$/.test(shard) || shard === '.' || shard === '..') {
      const field = `weight_map.${name}`
      throw new Mismatch({ where: index, field, expected: 'the name of a file beside the index', got: shard })
    }
    out.set(name, shard)
  }
  return out
}

function openShard(index: string, shard: string): Map<string, StoredTensor> {
  const path = join(dirname(index), shard)
  if (existsSync(path)) return slotsOf(path)
  const hint = 'the download is not complete'
  throw new Mismatch({ where: index, field: shard, expected: 'the shard beside the index', got: 'no such file', hint })
}

/** Other loaders take whole shards, so a tensor missing from the index is kept and logged; one in two shards is ambiguous. */
function addUnindexed(
  index: string,
  map: ReadonlyMap<string, string>,
  shards: ReadonlyMap<string, ReadonlyMap<string, StoredTensor>>,
  slots: Map<string, StoredTensor>,
): void {
  const unindexed: string[] = []
  for (const [shard, tensors] of shards) {
    for (const [name, slot] of tensors) {
      if (map.get(name) === shard) continue
      const got = `a second in ${shard}`
      if (slots.has(name)) throw new Mismatch({ where: index, field: name, expected: 'a tensor in one shard', got })
      slots.set(name, slot)
      unindexed.push(name)
    }
  }
  if (unindexed.length > 0)
    log.warn(`${index}: ${unindexed.length} tensors not listed: ${unindexed.slice(0, 8).join(', ')}`)
}
