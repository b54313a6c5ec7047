import { log, Mismatch } from '../core/index.ts'
import { type Linear, type Module, replaceTensor, type Slot, storeInt8, tensorAt } from '../nn/index.ts'
import {
  aten,
  isFloating,
  MappedFile,
  type Tensor,
  type DType as TensorDType,
  type TypedArray,
  tensor,
  tidy,
  typedArray,
} from '../tensor/index.ts'
import type { DType } from './dtype.ts'
import { missingAndExtra } from './names.ts'
import type { TensorSource } from './safetensors.ts'
import type { WeightFolder } from './weights.ts'

const toTorch: Partial<Record<DType, TensorDType>> = {
  BOOL: 'bool',
  U8: 'uint8',
  I8: 'int8',
  I16: 'int16',
  I32: 'int32',
  I64: 'int64',
  F16: 'float16',
  BF16: 'bfloat16',
  F32: 'float32',
  F64: 'float64',
}
const fromTorch = Object.fromEntries(Object.entries(toTorch).map(([k, v]) => [v, k])) as Record<TensorDType, DType>

export interface LoadOptions {
  /** Floating weights are cast to it; each keeps its stored dtype when absent. */
  dtype?: TensorDType
  device?: string
  /** Names a checkpoint may have that the model does not use; they are skipped and reported once. */
  unused?: readonly RegExp[]
  /** Names of the model a checkpoint may lack. */
  optional?: readonly RegExp[]
  /** Weights of linear layers that are stored in 8 bit, each as soon as it is read. */
  int8?: (slot: Slot) => boolean
  /** Refuse NaN and infinite weights (reads every tensor once). */
  checkFinite?: boolean
  onProgress?: (done: number, total: number) => void
}

/** What whoever opens a model may choose. */
export type OpenOptions = Omit<LoadOptions, 'unused' | 'optional' | 'int8'>

/** Reads tensors of a folder through memory maps, each file mapped once. */
export class TensorReader {
  readonly #folder: WeightFolder
  readonly #maps = new Map<string, MappedFile>()

  constructor(folder: WeightFolder) {
    this.#folder = folder
  }

  read(name: string): Tensor {
    const entry = this.#folder.entry(name)
    const dtype = toTorch[entry.dtype]
    if (!dtype)
      throw new Mismatch({
        where: entry.file,
        field: name,
        expected: `a dtype of ${Object.keys(toTorch).join(', ')}`,
        got: entry.dtype,
      })
    if (!entry.mappable) return fromBytes(this.#folder.read(name), dtype, entry.shape)
    let map = this.#maps.get(entry.file)
    if (!map) {
      map = new MappedFile(entry.file)
      this.#maps.set(entry.file, map)
    }
    return map.tensor(entry.offset, entry.shape, dtype)
  }

  close(): void {
    for (const map of this.#maps.values()) map.close()
    this.#maps.clear()
  }
}

function fromBytes(bytes: Uint8Array, dtype: TensorDType, shape: readonly number[]): Tensor {
  const array = typedArray(
    dtype,
    shape.reduce((a, b) => a * b, 1),
  )
  new Uint8Array(array.buffer).set(bytes)
  return tensor(array as TypedArray, shape, { dtype })
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
  if (options.int8?.(slot)) {
    tidy(() => {
      const stored = converted(reader.read(slot.name), slot, folder, { ...options, dtype: undefined })
      storeInt8(slot.owner as Linear, options.dtype ?? stored.dtype, stored)
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
  if (difference)
    throw new Mismatch({
      where: folder.path,
      field: 'tensors',
      expected: `the model's ${expected.size} tensors`,
      got: difference,
    })
  return skipped
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
  const { min, max } = aten('aminmax', t) as unknown as { min: Tensor; max: Tensor }
  const [low, high] = [min.to('float32').item(), max.to('float32').item()]
  if (Number.isFinite(low) && Number.isFinite(high)) return
  const got = Number.isNaN(low) || Number.isNaN(high) ? 'NaN' : 'an infinity'
  throw new Mismatch({ where: folder.entry(name).file, field: name, expected: 'finite weights', got })
}

/** A tensor as an entry for the writers; its bytes are fetched when they are written. */
export function tensorSource(name: string, t: Tensor): TensorSource {
  return {
    name,
    dtype: fromTorch[t.dtype],
    shape: t.shape,
    data: () => {
      const array = t.array()
      return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
    },
  }
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
