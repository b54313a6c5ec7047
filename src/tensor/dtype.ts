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

const makers: Record<DType, (n: number) => TypedArray> = {
  float32: (n) => new Float32Array(n),
  float64: (n) => new Float64Array(n),
  float16: (n) => new Uint16Array(n),
  bfloat16: (n) => new Uint16Array(n),
  int64: (n) => new BigInt64Array(n),
  int32: (n) => new Int32Array(n),
  int16: (n) => new Int16Array(n),
  int8: (n) => new Int8Array(n),
  uint8: (n) => new Uint8Array(n),
  bool: (n) => new Uint8Array(n),
}

export function typedArray(dtype: DType, length: number): TypedArray {
  return makers[dtype](length)
}

export const itemBytes: Record<DType, number> = {
  float32: 4,
  float64: 8,
  float16: 2,
  bfloat16: 2,
  int64: 8,
  int32: 4,
  int16: 2,
  int8: 1,
  uint8: 1,
  bool: 1,
}

export function isFloating(dtype: DType): boolean {
  return dtype === 'float32' || dtype === 'float64' || dtype === 'float16' || dtype === 'bfloat16'
}

/** The dtype a typed array holds when nothing else is said; Uint16Array is ambiguous and needs a word. */
export function dtypeOf(data: TypedArray): DType | undefined {
  if (data instanceof Float32Array) return 'float32'
  if (data instanceof Float64Array) return 'float64'
  if (data instanceof BigInt64Array) return 'int64'
  if (data instanceof Int32Array) return 'int32'
  if (data instanceof Int16Array) return 'int16'
  if (data instanceof Int8Array) return 'int8'
  if (data instanceof Uint8Array) return 'uint8'
  return undefined
}
