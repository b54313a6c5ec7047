import { type DType, dtypeCodes } from '../engine/index.ts'

export type { DType }
/** A number that ATen takes in place of a tensor. */
export type Scalar = number | boolean | bigint
export type MemoryFormat = 'contiguous' | 'preserve' | 'channels_last' | 'channels_last_3d'

/** f16 and bf16 travel as raw bits, int64 as bigint, bool as 0/1 bytes. */
export type TypedArray =
  | Float32Array
  | Float64Array
  | Uint16Array
  | BigInt64Array
  | Int32Array
  | Int16Array
  | Int8Array
  | Uint8Array

export const dtypeByCode: Record<number, DType> = Object.fromEntries(
  Object.entries(dtypeCodes).map(([name, code]) => [code, name as DType]),
)

interface ArrayKind {
  new (of: number | SharedArrayBuffer): TypedArray
  readonly BYTES_PER_ELEMENT: number
}

const arrays: Record<DType, ArrayKind> = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int64: BigInt64Array,
  int32: Int32Array,
  int16: Int16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
}

/** `shared`: other threads read it where it is. */
export function typedArray(dtype: DType, length: number, shared = false): TypedArray {
  return shared ? new arrays[dtype](new SharedArrayBuffer(length * itemBytes[dtype])) : new arrays[dtype](length)
}

export const itemBytes = Object.fromEntries(
  Object.entries(arrays).map(([dtype, array]) => [dtype, array.BYTES_PER_ELEMENT]),
) as Record<DType, number>

export function isFloating(dtype: DType): boolean {
  return dtype === 'float32' || dtype === 'float64' || dtype === 'float16' || dtype === 'bfloat16'
}

/** The dtype of a typed array; undefined for a Uint16Array, which is float16 or bfloat16. */
export function dtypeOf(data: TypedArray): DType | undefined {
  if (data instanceof Uint16Array) return undefined
  return (Object.keys(arrays) as DType[]).find((dtype) => data instanceof arrays[dtype])
}
