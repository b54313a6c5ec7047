import { crc32, Mismatch } from '../core/index.ts'
import { byteLengthOf, type DType, fromTorchDType, itemSize, showShape, torchDTypes } from './dtype.ts'
import { readFileRange, readRange, refuseFailedDownloadAt, withFile } from './file-ranges.ts'
import { dataNames, unpickle } from './pickle.ts'
import { type Fail, type PyCall, PyGlobal } from './pickle-machine.ts'
import { readZip, type ZipEntry } from './zip.ts'

// PyTorch's zip files (torch.save since 1.6): a pickle `data.pkl` that describes tensors, and one stored entry per storage.

/** A tensor of a .bin, .pt or .pth file. `offset` is the absolute byte offset of its first element in the file; strides
 * count elements. */
export interface TorchTensorRange {
  dtype: DType
  shape: readonly number[]
  strides: readonly number[]
  contiguous: boolean
  offset: number
  /** Bytes of the tensor once row-major. */
  byteLength: number
}

/** Storage described in the pickle; its bytes are the zip entry data/KEY. */
class Storage {
  constructor(
    readonly dtype: DType | null,
    readonly key: string,
    readonly count: number,
  ) {}
}

class TorchTensor {
  constructor(
    readonly storage: Storage,
    readonly dtype: DType,
    readonly offset: number,
    readonly shape: number[],
    readonly strides: number[],
  ) {}
}

const storageTypes: Record<string, DType> = {
  FloatStorage: 'F32',
  DoubleStorage: 'F64',
  HalfStorage: 'F16',
  BFloat16Storage: 'BF16',
  LongStorage: 'I64',
  IntStorage: 'I32',
  ShortStorage: 'I16',
  CharStorage: 'I8',
  ByteStorage: 'U8',
  BoolStorage: 'BOOL',
  ComplexFloatStorage: 'C64',
}

const torchNames = new Map<string, PyCall | null>([
  ...dataNames,
  ...Object.keys(storageTypes).map((name): [string, null] => [`torch.${name}`, null]),
  ...Object.keys(torchDTypes).map((name): [string, null] => [`torch.${name}`, null]),
  ['torch.storage.UntypedStorage', null],
  ['torch.Size', (args, fail) => (Array.isArray(args[0]) ? args[0] : fail('a tuple', typeof args[0]))],
  ['torch._utils._rebuild_tensor_v2', (args, fail) => rebuild(args, null, fail)],
  ['torch._utils._rebuild_tensor_v3', (args, fail) => rebuild(args, args[6], fail)],
  ['torch._utils._rebuild_parameter', parameter],
  ['torch._utils._rebuild_parameter_with_state', parameter],
])

/** A placeholder for an object of the trainer's log (mmengine writes one beside the weights): nothing of it is kept, nothing is run. */
class SkippedObject {
  build(): void {}
}

const skipped: PyCall = () => new SkippedObject()

function torchName(name: string): PyCall | null | undefined {
  return torchNames.get(name) ?? (torchNames.has(name) ? null : name.startsWith('mmengine.') ? skipped : undefined)
}

/** _rebuild_tensor(storage, offset, size, stride, ...); the third version names the dtype apart. */
function rebuild(args: readonly unknown[], typed: unknown, fail: Fail): TorchTensor {
  const [storage, offset, shape, strides] = args
  if (!(storage instanceof Storage)) return fail('a storage', typeof storage)
  const dtype = typed instanceof PyGlobal ? fromTorchDType(typed.name.replace('torch.', '')) : storage.dtype
  if (!dtype) return fail('a known element type', typed instanceof PyGlobal ? typed.name : 'none')
  if (!isSizes(shape) || !isSizes(strides) || shape.length !== strides.length || !isSizes([offset])) {
    return fail('an offset, a shape and strides of the same length', { offset: String(offset) })
  }
  return new TorchTensor(storage, dtype, offset as number, shape, strides)
}

function isSizes(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && n >= 0)
}

function parameter(args: readonly unknown[], fail: Fail): TorchTensor {
  return args[0] instanceof TorchTensor ? args[0] : fail('a tensor', typeof args[0])
}

/** ('storage', class, key, device, element count) */
function storageOf(id: unknown, fail: Fail): Storage {
  const [kind, type, key, , count] = Array.isArray(id) ? id : []
  if (kind !== 'storage' || !(type instanceof PyGlobal) || typeof key !== 'string' || !isSizes([count])) {
    return fail('the persistent id of a storage', typeof id)
  }
  if (type.name === 'torch.storage.UntypedStorage') return new Storage(null, key, count)
  const dtype = storageTypes[type.name.replace('torch.', '')]
  return dtype ? new Storage(dtype, key, count) : fail('a known storage class', type.name)
}

/** Reads the description of a state dict; the tensors stay in the file. `others`: names of values that are not tensors. */
export function readTorch(path: string): { tensors: ReadonlyMap<string, TorchTensorRange>; others: readonly string[] } {
  refuseLegacy(path)
  const entries = readZip(path)
  const root = rootOf(path, entries)
  checkByteOrder(path, entries.get(`${root}/byteorder`))
  const pickle = readEntry(path, entries.get(`${root}/data.pkl`)!)
  const where = `${path}: data.pkl`
  const value = unpickle(pickle, { where, find: torchName, persistent: storageOf })
  const dict = stateDictOf(path, value)
  const tensors = new Map<string, TorchTensorRange>()
  const others: string[] = []
  for (const [name, item] of dict) {
    if (item instanceof TorchTensor) tensors.set(String(name), place(path, String(name), item, root, entries))
    else others.push(String(name))
  }
  return { tensors, others }
}

/** Old files are a row of pickles with the storages at the end, or a tar. */
function refuseLegacy(path: string): void {
  const head = withFile(path, (fd, size) => {
    refuseFailedDownloadAt(fd, path, size, "PyTorch's zip format")
    return Buffer.from(readRange(fd, path, 0, Math.min(size, 14)))
  })
  const legacy = head.toString('hex') === '80028a0a6cfc9c46f9206aa85019'
  const zip = head.length >= 4 && head.readUInt32LE(0) === 0x04034b50
  if (zip) return
  throw new Mismatch({
    where: path,
    expected: "PyTorch's zip format",
    got: legacy ? "PyTorch's format from before version 1.6" : 'other bytes',
    hint: 'load it in Python and save it again with torch.save, or as safetensors',
  })
}

function rootOf(path: string, entries: ReadonlyMap<string, ZipEntry>): string {
  const found = [...entries.keys()].filter((name) => /^[^/]+\/data\.pkl$/.test(name))
  if (found.length !== 1) {
    const got = `${found.length} of them among ${entries.size} entries`
    throw new Mismatch({ where: path, expected: 'one entry NAME/data.pkl', got, hint: 'not a file of torch.save' })
  }
  const root = found[0]!.slice(0, -'/data.pkl'.length)
  if (entries.has(`${root}/constants.pkl`)) {
    const hint = 'save its state_dict() with torch.save or as safetensors'
    throw new Mismatch({ where: path, expected: 'tensors', got: 'a TorchScript program', hint })
  }
  return root
}

function checkByteOrder(path: string, entry: ZipEntry | undefined): void {
  if (!entry || entry.size > 16) return
  const order = Buffer.from(readFileRange(path, entry.offset, entry.size)).toString('latin1')
  if (order !== 'little') throw new Mismatch({ where: path, field: 'byteorder', expected: 'little', got: order })
}

function readEntry(path: string, entry: ZipEntry): Uint8Array {
  const bytes = readFileRange(path, entry.offset, entry.size)
  if (crc32(bytes) === entry.crc32) return bytes
  const hint = 'damaged file'
  throw new Mismatch({ where: path, field: 'data.pkl', expected: 'its check sum', got: 'another', hint })
}

const wrappers = ['state_dict', 'model', 'module', 'model_state_dict']

function holdsTensors(value: unknown): value is Map<unknown, unknown> {
  return value instanceof Map && [...value.values()].some((item) => item instanceof TorchTensor)
}

/** The file's own dict, or the one that training scripts wrap it in. */
function stateDictOf(path: string, value: unknown): Map<unknown, unknown> {
  if (holdsTensors(value)) return value
  const root = value instanceof Map ? value : new Map<unknown, unknown>()
  const inner = wrappers.map((key) => root.get(key)).find(holdsTensors)
  if (inner) return inner
  throw new Mismatch({
    where: path,
    expected: `a dict of tensors, or one under ${wrappers.join(', ')}`,
    got: root.size > 0 ? `keys ${[...root.keys()].slice(0, 8).map(String).join(', ')}` : typeof value,
  })
}

function place(
  path: string,
  name: string,
  t: TorchTensor,
  root: string,
  entries: ReadonlyMap<string, ZipEntry>,
): TorchTensorRange {
  const size = itemSize[t.dtype]
  const entry = entries.get(`${root}/data/${t.storage.key}`)
  const stored = t.storage.count * (t.storage.dtype ? itemSize[t.storage.dtype] : 1)
  if (!entry || entry.size < stored) {
    const got = entry ? `${entry.size} bytes` : 'no such entry'
    throw new Mismatch({ where: path, field: name, expected: `storage ${t.storage.key} of ${stored} bytes`, got })
  }
  const byteLength = byteLengthOf(t.dtype, t.shape)
  const reach = byteLength === 0 ? 0 : t.shape.reduce((sum, n, i) => sum + (n - 1) * t.strides[i]!, t.offset) + 1
  // Repeated elements (stride 0) would let a small file ask for any amount of memory.
  if (byteLength === null || reach * size > stored || byteLength > stored) {
    const got = `shape ${showShape(t.shape)}, strides ${showShape(t.strides)}, offset ${t.offset}`
    throw new Mismatch({ where: path, field: name, expected: `a tensor inside a storage of ${stored} bytes`, got })
  }
  const { dtype, shape, strides } = t
  const contiguous = isContiguous(shape, strides)
  return { dtype, shape, strides, contiguous, offset: entry.offset + t.offset * size, byteLength }
}

function isContiguous(shape: readonly number[], strides: readonly number[]): boolean {
  if (shape.includes(0)) return true
  let step = 1
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] !== 1 && strides[i] !== step) return false
    step *= shape[i]!
  }
  return true
}

/** The tensor's bytes in row-major order; other layouts are gathered. */
export function readTorchBytes(path: string, tensor: TorchTensorRange): Uint8Array {
  const { shape, strides, offset, byteLength } = tensor
  if (tensor.contiguous) return readFileRange(path, offset, byteLength)
  const size = itemSize[tensor.dtype]
  const reach = shape.reduce((sum, n, i) => sum + (n - 1) * strides[i]!, 0) + 1
  const from = readFileRange(path, offset, reach * size)
  return gather(from, size, shape, strides, byteLength)
}

function gather(
  from: Uint8Array,
  size: number,
  shape: readonly number[],
  strides: readonly number[],
  byteLength: number,
): Uint8Array {
  const out = new Uint8Array(byteLength)
  const index = new Array<number>(shape.length).fill(0)
  let source = 0
  for (let at = 0; at < byteLength; at += size) {
    for (let b = 0; b < size; b++) out[at + b] = from[source + b]!
    for (let d = shape.length - 1; d >= 0; d--) {
      source += strides[d]! * size
      if (++index[d]! < shape[d]!) break
      source -= strides[d]! * size * shape[d]!
      index[d] = 0
    }
  }
  return out
}
