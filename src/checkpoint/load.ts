import { log, Mismatch } from '../core/index.ts'
import {
  type FrozenForm,
  type Linear,
  type Module,
  replaceTensor,
  type Slot,
  storeQuantized,
  tensorAt,
} from '../nn/index.ts'
import {
  aten,
  isFloating,
  itemBytes,
  MappedFile,
  type Tensor,
  type DType as TensorDType,
  tensor,
  tidy,
  typedArray,
} from '../tensor/index.ts'
import { type DType, dtypes, fromTorchDType, toTorchDType } from './dtype.ts'
import { missingAndExtra } from './names.ts'
import type { TensorSource } from './safetensors.ts'
import type { WeightFolder } from './weights.ts'

interface LoadOptions {
  /** Floating weights are cast to it; each keeps its stored dtype when absent. */
  dtype?: TensorDType
  device?: string
  /** Names a checkpoint may have that the model does not use; they are skipped and reported once. */
  unused?: readonly RegExp[]
  /** Names of the model a checkpoint may lack. */
  optional?: readonly RegExp[]
  /** How a weight is stored: those of linear layers may be quantized, each as soon as it is read. */
  formOf?: (slot: Slot) => FrozenForm
  /** Refuse NaN and infinite weights (reads every tensor once). */
  checkFinite?: boolean
  onProgress?: (done: number, total: number) => void
}

/** What whoever opens a model may choose. */
export type OpenOptions = Omit<LoadOptions, 'unused' | 'optional' | 'formOf'>

/** Reads tensors of a folder through memory maps, each file mapped once. */
export class TensorReader {
  readonly #folder: WeightFolder
  readonly #maps = new Map<string, MappedFile>()

  constructor(folder: WeightFolder) {
    this.#folder = folder
  }

  read(name: string): Tensor {
    const { file, offset, shape, mappable } = this.#folder.entry(name)
    if (!mappable) return storedTensor(this.#folder, name)
    const map = this.#maps.get(file) ?? new MappedFile(file)
    this.#maps.set(file, map)
    return map.tensor(offset, shape, tensorDType(this.#folder, name))
  }

  close(): void {
    for (const map of this.#maps.values()) map.close()
    this.#maps.clear()
  }
}

/** The dtype of a stored tensor, as PyTorch names it; rejects one that tensors cannot have. */
function tensorDType(folder: WeightFolder, name: string): TensorDType {
  const { dtype, file } = folder.entry(name)
  const isUsable = (stored: DType) => (toTorchDType(stored) ?? '') in itemBytes
  if (isUsable(dtype)) return toTorchDType(dtype) as TensorDType
  const expected = `a dtype of ${dtypes.filter(isUsable).join(', ')}`
  throw new Mismatch({ where: file, field: name, expected, got: dtype })
}

/** A copy of one tensor of a folder, as stored. */
export function storedTensor(folder: WeightFolder, name: string): Tensor {
  const { shape } = folder.entry(name)
  const dtype = tensorDType(folder, name)
  const length = shape.reduce((a, b) => a * b, 1)
  const array = typedArray(dtype, length)
  new Uint8Array(array.buffer).set(folder.read(name))
  return tensor(array, shape, { dtype })
}

/** The bytes of a tensor, row-major. */
export function bytesOf(t: Tensor): Uint8Array {
  const array = t.array()
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
}

/** Fills a model from a folder. Missing, unexpected and misshapen tensors come in one error. */
export function loadWeights(model: Module, folder: WeightFolder, options: LoadOptions = {}): void {
  const slots = model.slots()
  const skipped = checkNames(slots, folder, options)
  if (skipped.length > 0)
    log.info(`${folder.path}: ${skipped.length} tensors the model does not use are left unread (${skipped[0]} ...)`)
  const reader = new TensorReader(folder)
  try {
    slots.forEach((slot, i) => {
      if (folder.has(slot.name)) place(slot, reader, folder, options)
      options.onProgress?.(i + 1, slots.length)
    })
  } finally {
    reader.close()
  }
}

function place(slot: Slot, reader: TensorReader, folder: WeightFolder, options: LoadOptions): void {
  const form = options.formOf?.(slot) ?? 'exact'
  if (form !== 'exact') {
    tidy(() => {
      const stored = converted(reader.read(slot.name), slot, folder, { ...options, dtype: undefined })
      storeQuantized(slot.owner as Linear, form, options.dtype ?? stored.dtype, stored)
    })
    return
  }
  replaceTensor(
    slot,
    tidy(() => converted(reader.read(slot.name), slot, folder, options)),
  )
}

function checkNames(slots: readonly Slot[], folder: WeightFolder, options: LoadOptions): string[] {
  const have = folder.shapes()
  const skipped = [...have.keys()].filter((name) => options.unused?.some((p) => p.test(name)))
  for (const name of skipped) have.delete(name)
  const expected = new Map(slots.map((s) => [s.name, tensorAt(s).shape]))
  for (const name of [...expected.keys()])
    if (!have.has(name) && options.optional?.some((p) => p.test(name))) expected.delete(name)
  const difference = missingAndExtra(expected, have)
  if (difference === null) return skipped
  const tensors = `the model's ${expected.size} tensors`
  throw new Mismatch({ where: folder.path, field: 'tensors', expected: tensors, got: difference })
}

function converted(stored: Tensor, slot: Slot, folder: WeightFolder, options: LoadOptions): Tensor {
  if (isFloating(tensorAt(slot).dtype) && !isFloating(stored.dtype)) {
    const { file } = folder.entry(slot.name)
    throw new Mismatch({ where: file, field: slot.name, expected: 'a floating-point dtype', got: stored.dtype })
  }
  if ((options.checkFinite ?? true) && isFloating(stored.dtype)) requireFinite(stored, slot.name, folder)
  const dtype = options.dtype && isFloating(stored.dtype) ? options.dtype : stored.dtype
  const cast = dtype === stored.dtype ? stored : stored.to(dtype)
  return options.device && options.device !== 'cpu' ? cast.to(options.device) : cast
}

function requireFinite(t: Tensor, name: string, folder: WeightFolder): void {
  if (t.numel === 0) return
  // libtorch below 2 has no aminmax of float16 on the CPU
  const wide = t.dtype === 'float16' ? t.to('float32') : t
  const { min, max } = aten('aminmax', wide) as unknown as { min: Tensor; max: Tensor }
  const [low, high] = [min.to('float32').item(), max.to('float32').item()]
  if (Number.isFinite(low) && Number.isFinite(high)) return
  const got = Number.isNaN(low) || Number.isNaN(high) ? 'NaN' : 'an infinity'
  throw new Mismatch({ where: folder.entry(name).file, field: name, expected: 'finite weights', got })
}

/** A tensor as an entry for the writers; its bytes are fetched when they are written. */
export function tensorSource(name: string, t: Tensor): TensorSource {
  return { name, dtype: fromTorchDType(t.dtype)!, shape: t.shape, data: () => bytesOf(t) }
}

/** Tensors of one safetensors file or folder, by name, as new tensors of the current scope. */
export function readTensors(folder: WeightFolder, device = 'cpu'): Map<string, Tensor> {
  const reader = new TensorReader(folder)
  try {
    return new Map(folder.names.map((name) => [name, placed(reader.read(name), device)]))
  } finally {
    reader.close()
  }
}

function placed(t: Tensor, device: string): Tensor {
  const out = device === 'cpu' ? t.clone() : t.to(device)
  t.dispose()
  return out
}
