// Writes a trained model as a full folder. Base weights come from the source folder in their stored dtype, never from memory, where
// they may be rounded. So the result does not depend on the dtype of the run.
import { copyFileSync, lstatSync, mkdirSync, readdirSync, realpathSync, statSync } from 'node:fs'
import { basename, join, relative, resolve } from 'node:path'
import { atomicWriteJson, expecting, log, Mismatch, readJsonObject } from '../core/index.ts'
import { isQuantized, Linear, type Module, type Slot, tensorAt } from '../nn/index.ts'
import { type DType, isFloating, type Tensor, tidyNoGrad } from '../tensor/index.ts'
import { toTorchDType } from './dtype.ts'
import { bytesOf, TensorReader } from './load.ts'
import { readHeader, type TensorSource, writeSafetensors } from './safetensors.ts'
import { openWeights, type WeightFolder } from './weights.ts'
import { writeWeights } from './weights-write.ts'
import { openWholeFolder, requireNoModel } from './whole-folder.ts'

interface ExportOptions {
  /** Writes shards of at most this size instead of the source's own files. */
  maxShardBytes?: number
  /** The model's name of a stored tensor, where the two differ. */
  ourName?: (stored: string) => string
  /** How the source's weights are read, where its names are not those of a released folder (see unmerged.ts). */
  open?: (dir: string) => WeightFolder
}

/**
 * Writes the folder `dir` to `out`, with the weights that `model` has changed. A weight counts as changed if its value differs from
 * the source's in the model's precision, or if it has adapters, which are added in float64 and rounded once. All other tensors and
 * files are copied byte for byte. The model itself is not modified. Returns the names of the weight files.
 */
export function exportModel(model: Module, dir: string, out: string, options: ExportOptions = {}): string[] {
  const source = (options.open ?? openWeights)(dir)
  requireNoModel(out)
  const folder = openWholeFolder(out)
  const reader = new TensorReader(source)
  try {
    const asStored = !options.open || source.names.join() === openWeights(dir).names.join()
    copyOthers(source, dir, folder.unfinished) // first: copy errors are reported before the weights are written
    const files = writeTensors(source, entriesOf(model, source, reader, options), folder.unfinished, options, asStored)
    folder.commit()
    return files
  } catch (error) {
    folder.discard()
    throw error
  } finally {
    reader.close()
  }
}

function entriesOf(
  model: Module,
  source: WeightFolder,
  reader: TensorReader,
  { ourName }: ExportOptions,
): TensorSource[] {
  const slots = new Map(model.slots().map((slot) => [slot.name, slot]))
  return source.names.map((name) => {
    const { dtype, shape } = source.entry(name)
    const slot = slots.get(ourName ? ourName(name) : name)
    const torch = toTorchDType(dtype) as DType | undefined
    if (!slot || !torch) return { name, dtype, shape, data: () => source.read(name) }
    const data = () => changedBytes(slot, name, reader.read(name), source) ?? source.read(name)
    return { name, dtype, shape, data }
  })
}

/** The bytes of a weight that is no longer the source's, in the source's dtype; null for one that is. */
function changedBytes(slot: Slot, name: string, stored: Tensor, source: WeightFolder): Uint8Array | null {
  const bytes = tidyNoGrad(() => {
    const value = currentValue(slot, stored)
    if (value === null) return null
    requireFinite(value, name, source)
    return bytesOf(value.contiguous())
  })
  stored.dispose()
  return bytes
}

function currentValue(slot: Slot, stored: Tensor): Tensor | null {
  const now = tensorAt(slot).detach().to('cpu')
  const base = isQuantized(now) || isSame(now, stored) ? stored : now // a quantized weight is frozen: the source has it exactly
  const adapted = slot.owner instanceof Linear && slot.key === 'weight' && slot.owner.lora_A ? slot.owner : null
  const value = adapted ? base.to('float64').add(deltaOf(adapted)).to(stored.dtype) : base.to(stored.dtype)
  return value.equal(stored) ? null : value
}

/** Narrow dtypes a model may be opened in; a float32 master of it then begins at the narrow value. */
const narrow: readonly DType[] = ['bfloat16', 'float16']

/** Whether a model's value is the stored one as loading rounds it. */
function isSame(now: Tensor, stored: Tensor): boolean {
  if (!isFloating(stored.dtype) || stored.to(now.dtype).equal(now)) return stored.to(now.dtype).equal(now)
  return narrow.some((dtype) => stored.to(dtype).to(now.dtype).equal(now))
}

/** scale B A on the CPU in float64: [out, in]. */
function deltaOf(linear: Linear): Tensor {
  const wide = (t: Tensor) => t.detach().to('cpu').to('float64')
  return wide(linear.lora_B!.weight).matmul(wide(linear.lora_A!.weight)).mul(linear.adapter!.scale)
}

function requireFinite(value: Tensor, name: string, source: WeightFolder): void {
  if (!isFloating(value.dtype) || value.numel === 0) return
  const bad = value.numel - value.isfinite().sum().item()
  if (bad === 0) return
  const [expected, got] = [`finite weights in ${source.entry(name).dtype}`, `${bad} of ${value.numel} NaN or infinite`]
  const hint = 'the run diverged, or the stored dtype is too narrow; nothing was written'
  throw new Mismatch({ where: 'export', field: name, expected, got, hint })
}

function writeTensors(
  source: WeightFolder,
  entries: readonly TensorSource[],
  out: string,
  { maxShardBytes }: ExportOptions,
  asStored: boolean,
): string[] {
  const own = asStored && maxShardBytes === undefined && source.files.every((file) => file.endsWith('.safetensors'))
  return own ? writeShards(source, entries, out) : writeWeights(out, entries, { maxShardBytes })
}

/** The same files with the same tensors in each; the index is the source's own. */
function writeShards(source: WeightFolder, entries: readonly TensorSource[], out: string): string[] {
  const files = source.files.map((file) => {
    const inside = entries.filter((entry) => source.entry(entry.name).file === file)
    writeSafetensors(join(out, basename(file)), inside, readHeader(file).metadata)
    return basename(file)
  })
  const index = 'model.safetensors.index.json'
  if (files.length === 1 && files[0] === 'model.safetensors') return files
  copyIndex(join(source.path, index), join(out, index), bordersOf(source.path))
  return [...files, index]
}

/** The source's bytes; of an index that a link outside leads to, only what an index is. */
function copyIndex(path: string, to: string, borders: readonly string[]): void {
  if (borders.some((border) => isInside(realpathSync(path), border))) copyFileSync(path, to)
  else {
    const { metadata, weight_map } = readJsonObject(path)
    atomicWriteJson(to, { metadata, weight_map })
  }
}

/** Weights in any of the loader's spellings; their place is taken by what was written. */
const weightFile = /^(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?$/
/** What tools leave beside a download. */
const notOfTheModel = new Set(['.git', '.cache'])

/** Files and folders beside the weights. What links lead to outside the folder may be private, and stays there. */
function copyOthers(source: WeightFolder, from: string, out: string): void {
  const written = new Set(source.files.map((file) => basename(file)))
  const borders = bordersOf(from)
  for (const name of readdirSync(from)) {
    if (written.has(name) || weightFile.test(name) || notOfTheModel.has(name)) continue
    copyOwn(join(from, name), join(out, name), borders, realpathSync(out))
  }
}

/** Folders whose files may be copied: the model folder and, of a snapshot in the hub's cache, the cache's blobs of that model. */
function bordersOf(from: string): string[] {
  const folder = realpathSync(from)
  const cached = /^(.*\/(?:models|datasets|spaces)--[^/]+)\/snapshots\/[^/]+$/.exec(folder)
  return cached ? [folder, join(cached[1]!, 'blobs')] : [folder]
}

/** `out`: the folder that is being written, which may be inside the model folder. */
function copyOwn(path: string, to: string, borders: readonly string[], out: string): void {
  const isLink = lstatSync(path).isSymbolicLink()
  const stats = expecting({ where: path, expected: 'a file or a link to one' }, () => statSync(path))
  const real = realpathSync(path)
  if (real === out) return
  if (!stats.isFile() && !stats.isDirectory()) log.warn(`${path}: neither a file nor a folder, not exported`)
  else if (isLink && stats.isDirectory()) log.warn(`${path}: a link to a folder, not exported`)
  else if (!borders.some((border) => isInside(real, border)))
    log.warn(`${path}: a link out of the model folder, not exported`)
  else if (stats.isFile()) copyFileSync(real, to)
  else {
    mkdirSync(to)
    for (const name of readdirSync(path)) copyOwn(join(path, name), join(to, name), borders, out)
  }
}

function isInside(path: string, folder: string): boolean {
  const way = relative(resolve(folder), resolve(path))
  return way === '' || !(way === '..' || way.startsWith('../') || resolve(way) === way)
}
