import { Mismatch } from '../core/index.ts'
import { buffer, type DType, deviceCode, dtypeCodes, native, op, wrapWith } from '../engine/index.ts'
import { dtypeByCode, dtypeOf, type TypedArray, typedArray } from './dtype.ts'
import { TensorOps } from './ops.gen.ts'

interface Facts {
  shape: readonly number[]
  dtype: DType
  device: string
  numel: number
}

const deviceNames: Record<number, string> = { 0: 'cpu', 1: 'cuda', 14: 'meta' }

/** A tensor of libtorch: a handle, and the methods of ops.gen.ts. Freed by the scope it was created in, or by dispose(). */
export class Tensor extends TensorOps {
  #facts: Facts | undefined

  get shape(): readonly number[] {
    return this.#read().shape
  }

  get dtype(): DType {
    return this.#read().dtype
  }

  get device(): string {
    return this.#read().device
  }

  get numel(): number {
    return this.#read().numel
  }

  get ndim(): number {
    return this.#read().shape.length
  }

  /** Size along a dimension; negative counts from the end. */
  size(dim: number): number {
    const { shape } = this.#read()
    const n = shape.at(dim)
    if (n === undefined) throw new Mismatch({ where: 'size', field: 'dim', expected: `inside [${shape}]`, got: dim })
    return n
  }

  get requiresGrad(): boolean {
    buffer[0] = this.handle
    native().meta()
    return buffer[3] !== 0
  }

  get isLeaf(): boolean {
    buffer[0] = this.handle
    native().meta()
    return buffer[4] !== 0
  }

  requiresGrad_(on = true): this {
    buffer[0] = this.handle
    buffer[1] = on ? 1 : 0
    native().requiresGrad()
    return this
  }

  /** The gradient accumulated so far, a fresh handle of the current scope; null before any backward. */
  grad(): Tensor | null {
    buffer[0] = this.handle
    native().grad()
    return buffer[0] === -1 ? null : make(buffer[0]!)
  }

  /** Replaces the gradient; null drops it. */
  setGrad(grad: Tensor | null): void {
    buffer[0] = this.handle
    buffer[1] = grad ? grad.handle : -1
    native().setGrad()
  }

  /** The only element, as a number. Waits for the device. */
  item(): number {
    buffer[0] = this.handle
    native().item()
    return buffer[0]!
  }

  /** A copy of the elements, row-major; `shared`: in memory that other threads can read. Waits for the device. */
  array(shared = false): TypedArray {
    const { dtype, numel } = this.#read()
    const out = typedArray(dtype, numel, shared)
    buffer[0] = this.handle
    native().toTyped(out)
    return out
  }

  /** The elements as plain numbers, of any dtype. */
  numbers(): number[] {
    const plain = this.dtype === 'bfloat16' || this.dtype === 'float16' ? this.to('float32') : this
    const out = Array.from(plain.array() as ArrayLike<number | bigint>, Number)
    if (plain !== this) plain.dispose()
    return out
  }

  /** The same tensor in another dtype and/or on another device; itself in a new handle when nothing changes. */
  override to(target: DType | string, options: { nonBlocking?: boolean; copy?: boolean } = {}): Tensor {
    if (target in dtypeCodes) return super.to(target as DType, options)
    return toDevice(this, {
      device: target,
      dtype: this.dtype,
      nonBlocking: options.nonBlocking,
      copy: options.copy,
    }) as Tensor
  }

  /** A second handle of the same tensor. */
  alias(): Tensor {
    buffer[0] = this.handle
    native().alias()
    return make(buffer[0]!)
  }

  get alive(): boolean {
    buffer[0] = this.handle
    native().alive()
    return buffer[0] !== 0
  }

  dispose(): void {
    buffer[0] = this.handle
    native().dispose()
    origins?.delete(this.handle)
  }

  [Symbol.dispose](): void {
    this.dispose()
  }

  override toString(): string {
    return this.alive
      ? `Tensor(${this.dtype} [${this.shape}]${this.device === 'cpu' ? '' : ` ${this.device}`})`
      : 'Tensor(freed)'
  }

  #read(): Facts {
    if (this.#facts) return this.#facts
    buffer[0] = this.handle
    native().meta()
    const shape = new Array<number>(buffer[6]!)
    for (let i = 0; i < shape.length; i++) shape[i] = buffer[7 + i]!
    const type = deviceNames[buffer[1]!] ?? `device${buffer[1]}`
    const index = buffer[2]!
    this.#facts = {
      dtype: dtypeByCode[buffer[0]!] ?? ('unknown' as DType),
      device: index > 0 || type === 'cuda' ? `${type}:${Math.max(index, 0)}` : type,
      numel: buffer[5]!,
      shape,
    }
    return this.#facts
  }
}

const toDevice = (() => {
  let f: ReturnType<typeof op> | undefined
  return (t: Tensor, o: { device: string; dtype: DType; nonBlocking?: boolean; copy?: boolean }) => {
    f ??= op('to.dtype_layout')
    return f(t, o)
  }
})()

/** Creation sites by handle, kept in debug mode only (ROUNDTRIP_DEBUG=tensors). */
export const origins: Map<number, string> | undefined = process.env.ROUNDTRIP_DEBUG?.includes('tensors')
  ? new Map()
  : undefined

function make(handle: number): Tensor {
  if (origins) origins.set(handle, siteOf(new Error('created')))
  return new Tensor(handle)
}
wrapWith(make)

export { make as tensorOfHandle }

function siteOf(error: Error): string {
  const lines = (error.stack ?? '').split('\n').slice(2)
  const outside = lines.find(
    (l) => !/[\\/](tensor|engine)[\\/](tensor|ops\.gen|dispatch|create|compat)\.[tj]s|<anonymous>:/.test(l),
  )
  return (outside ?? lines[0] ?? 'unknown').trim().replace(/^at /, '')
}

type Nested = number | boolean | readonly Nested[]

function flatten(data: Nested, out: number[], shape: number[], depth: number): void {
  if (!Array.isArray(data)) {
    if (depth !== shape.length) throw ragged()
    out.push(Number(data))
    return
  }
  if (shape.length === depth) shape.push(data.length)
  else if (shape[depth] !== data.length) throw ragged()
  for (const item of data as readonly Nested[]) flatten(item, out, shape, depth + 1)
}

function ragged(): Mismatch {
  return new Mismatch({ where: 'tensor', field: 'data', expected: 'rows of equal length', got: 'a ragged nesting' })
}

/** Element type and device of a new tensor. */
export interface TensorOptions {
  dtype?: DType
  device?: string
}

/** A tensor from a number, nested arrays, or a typed array with a shape. Plain numbers become float32 unless a dtype is given. */
export function tensor(
  data: Nested | TypedArray,
  shapeOrOptions?: readonly number[] | TensorOptions,
  maybe?: TensorOptions,
): Tensor {
  const options = (Array.isArray(shapeOrOptions) ? maybe : (shapeOrOptions as TensorOptions | undefined)) ?? {}
  const shape = Array.isArray(shapeOrOptions) ? (shapeOrOptions as readonly number[]) : undefined
  return ArrayBuffer.isView(data) ? fromTyped(data, shape ?? [data.length], options) : fromNested(data, shape, options)
}

/** An int64 tensor (ids, positions, indices) from plain numbers; shape and options as in `tensor`. */
export function int64Tensor(
  values: Iterable<number>,
  shapeOrOptions?: readonly number[] | TensorOptions,
  maybe?: TensorOptions,
): Tensor {
  const numbers = values instanceof Int32Array || Array.isArray(values) ? (values as ArrayLike<number>) : [...values]
  return tensor(wideWords(numbers), shapeOrOptions, maybe)
}

/** BigInt64Array.from takes a fifth of a microsecond for a number. */
function wideWords(values: ArrayLike<number>): BigInt64Array {
  const words = new Int32Array(2 * values.length)
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!
    if (!Number.isSafeInteger(value)) throw new RangeError(`int64Tensor: expected whole numbers, got ${value}`)
    words[2 * i] = value // modulo 2 ** 32
    words[2 * i + 1] = Math.floor(value / 2 ** 32)
  }
  return new BigInt64Array(words.buffer)
}

function fromNested(data: Nested, shape: readonly number[] | undefined, options: TensorOptions): Tensor {
  const flat: number[] = []
  const found: number[] = []
  flatten(data, flat, found, 0)
  const dtype = options.dtype ?? (typeof data === 'boolean' ? 'bool' : 'float32')
  if (dtype === 'bfloat16' || dtype === 'float16')
    return put(Float32Array.from(flat), 'float32', shape ?? found, options)
  const array = typedArray(dtype, flat.length)
  if (array instanceof BigInt64Array) for (let i = 0; i < flat.length; i++) array[i] = BigInt(whole(flat[i]!))
  else for (let i = 0; i < flat.length; i++) array[i] = flat[i]!
  return put(array, dtype, shape ?? found, options)
}

function whole(value: number): number {
  if (!Number.isInteger(value))
    throw new Mismatch({ where: 'tensor', field: 'data', expected: 'integers for int64', got: value })
  return value
}

function fromTyped(data: TypedArray, shape: readonly number[], options: TensorOptions): Tensor {
  const native16 = data instanceof Uint16Array
  const own = native16 ? options.dtype : dtypeOf(data)
  const expected = 'bfloat16 or float16 for a Uint16Array'
  if (!own) throw new Mismatch({ where: 'tensor', field: 'dtype', expected, got: options.dtype ?? 'none' })
  const asBool = options.dtype === 'bool' && data instanceof Uint8Array
  return put(data, asBool ? 'bool' : own, shape, options)
}

/**
 * The one way of numbers from the host to a device, in one call that reads them where they are and does not wait for what the device is
 * doing: what is not pinned was staged when the call returns, as libtorch's own copies rely on.
 */
function put(data: TypedArray, own: DType, shape: readonly number[], options: TensorOptions): Tensor {
  const bad = shape.find((n) => !Number.isInteger(n) || n < 0)
  if (bad !== undefined)
    throw new Mismatch({ where: 'tensor', field: 'shape', expected: 'whole numbers from 0', got: bad })
  const need = shape.reduce((a, b) => a * b, 1)
  if (need !== data.length)
    throw new Mismatch({ where: 'tensor', field: 'shape', expected: `${data.length} elements`, got: `[${shape}]` })
  buffer[0] = dtypeCodes[own]
  buffer[1] = dtypeCodes[options.dtype ?? own]
  buffer[2] = deviceCode(options.device ?? 'cpu', 'tensor')
  buffer[3] = shape.length
  shape.forEach((n, i) => {
    buffer[4 + i] = n
  })
  native().fromTyped(data)
  return make(buffer[0]!)
}
