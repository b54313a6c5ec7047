import { type Buildable, type Fail, type PyCall, PyGlobal } from './pickle-machine.ts'

// numpy arrays and scalars inside pickles, as plain data. Only little-endian numbers and booleans; objects are refused.

/** An array in row-major order; `dtype` as numpy spells it: f4, i8, u1, b1. */
export class NumpyArray implements Buildable {
  dtype = 'f8'
  shape: number[] = []
  data: Uint8Array = new Uint8Array(0)

  /** State of ndarray: (version, shape, dtype, is Fortran order, bytes). */
  build(state: unknown, fail: Fail): void {
    if (!Array.isArray(state) || state.length !== 5) fail("an array's state of 5 parts", 'another')
    const [, shape, dtype, fortran, data] = state
    if (!(dtype instanceof NumpyDType)) fail('a numpy dtype', typeof dtype)
    if (!Array.isArray(shape) || !shape.every((n) => Number.isSafeInteger(n) && n >= 0)) fail('a shape', shape)
    if (fortran === true && shape.length > 1) fail('an array in row-major order', 'Fortran order')
    if (!(data instanceof Uint8Array)) fail('the bytes of an array', typeof data)
    const bytes = shape.reduce((a: number, b: number) => a * b, dtype.itemSize)
    if (bytes !== data.length) fail(`${bytes} bytes for shape [${shape.join(', ')}]`, data.length)
    this.dtype = dtype.name
    this.shape = shape
    this.data = data
  }

  /** The elements; 64-bit integers inside 2^53 are numbers, others bigints. */
  values(): (number | bigint | boolean)[] {
    const size = itemSizeOf(this.dtype)
    return Array.from({ length: this.data.length / size }, (_, i) => element(this.dtype, this.data, i * size))
  }
}

class NumpyDType implements Buildable {
  readonly name: string
  readonly itemSize: number

  constructor(name: string) {
    this.name = name
    this.itemSize = itemSizeOf(name)
  }

  /** State of dtype: (version, byte order, subdtype, names, fields, ...). */
  build(state: unknown, fail: Fail): void {
    const order = Array.isArray(state) ? state[1] : undefined
    if (order !== '<' && order !== '|' && order !== '=') fail('little-endian numbers', String(order))
    if (Array.isArray(state) && (state[2] != null || state[3] != null)) fail('a simple dtype', 'one with fields')
  }
}

function itemSizeOf(dtype: string): number {
  return Number(dtype.slice(1))
}

const wide = (n: bigint) => (Number.isSafeInteger(Number(n)) ? Number(n) : n)
const readers: Record<string, (view: DataView) => number | bigint | boolean> = {
  b1: (view) => view.getUint8(0) !== 0,
  u1: (view) => view.getUint8(0),
  i1: (view) => view.getInt8(0),
  u2: (view) => view.getUint16(0, true),
  i2: (view) => view.getInt16(0, true),
  u4: (view) => view.getUint32(0, true),
  i4: (view) => view.getInt32(0, true),
  u8: (view) => wide(view.getBigUint64(0, true)),
  i8: (view) => wide(view.getBigInt64(0, true)),
  f4: (view) => view.getFloat32(0, true),
  f8: (view) => view.getFloat64(0, true),
}
const knownDTypes = Object.keys(readers)

function element(dtype: string, data: Uint8Array, at: number): number | bigint | boolean {
  return readers[dtype]!(new DataView(data.buffer, data.byteOffset + at))
}

function makeDType(args: readonly unknown[], fail: Fail): NumpyDType {
  const [name] = args
  if (typeof name !== 'string' || !knownDTypes.includes(name)) {
    return fail(`a numpy dtype of ${knownDTypes.join(' ')}`, String(name).slice(0, 40))
  }
  return new NumpyDType(name)
}

/** _reconstruct(ndarray, (0,), b'b'): an empty array whose state follows. */
function reconstruct(args: readonly unknown[], fail: Fail): NumpyArray {
  const [type] = args
  return type instanceof PyGlobal && type.name === 'numpy.ndarray'
    ? new NumpyArray()
    : fail('numpy.ndarray', typeof type)
}

function scalar(args: readonly unknown[], fail: Fail): number | bigint | boolean {
  const [dtype, data] = args
  if (!(dtype instanceof NumpyDType) || !(data instanceof Uint8Array) || data.length !== dtype.itemSize) {
    return fail('a dtype and the bytes of one element', typeof data)
  }
  return element(dtype.name, data, 0)
}

/** _frombuffer(bytes, dtype, shape, order): how protocol 5 spells an array. */
function fromBuffer(args: readonly unknown[], fail: Fail): NumpyArray {
  const [data, dtype, shape, order] = args
  const array = new NumpyArray()
  array.build([1, shape, dtype, order === 'F', data], fail)
  return array
}

export const numpyNames: [string, PyCall | null][] = [
  ['numpy.ndarray', null],
  ['numpy.dtype', makeDType],
  ...['numpy.core.multiarray', 'numpy._core.multiarray'].flatMap((module): [string, PyCall][] => [
    [`${module}._reconstruct`, reconstruct],
    [`${module}.scalar`, scalar],
  ]),
  ['numpy.core.numeric._frombuffer', fromBuffer],
  ['numpy._core.numeric._frombuffer', fromBuffer],
]
