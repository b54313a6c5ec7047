import { Mismatch } from '../core/index.ts'

/** Element types spelled as safetensors spells them, with bytes per element. The order is that of the format's own
 * serialiser, which lays tensors out by falling type, then by name. */
export const itemSize = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  F8_E8M0: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  C64: 8,
  F64: 8,
  I64: 8,
  U64: 8,
} as const

export type DType = keyof typeof itemSize
export const dtypes = Object.keys(itemSize) as DType[]

export function isDType(value: unknown): value is DType {
  return typeof value === 'string' && Object.hasOwn(itemSize, value)
}

/** PyTorch's names, which the tensor rooms use. */
export const torchDTypes: Record<string, DType> = {
  float32: 'F32',
  float64: 'F64',
  float16: 'F16',
  bfloat16: 'BF16',
  int64: 'I64',
  int32: 'I32',
  int16: 'I16',
  int8: 'I8',
  uint8: 'U8',
  bool: 'BOOL',
  uint16: 'U16',
  uint32: 'U32',
  uint64: 'U64',
  float8_e4m3fn: 'F8_E4M3',
  float8_e5m2: 'F8_E5M2',
  complex64: 'C64',
}

const torchNameOf = new Map(Object.entries(torchDTypes).map(([name, dtype]) => [dtype, name]))

export function fromTorchDType(name: string): DType | undefined {
  return Object.hasOwn(torchDTypes, name) ? torchDTypes[name] : undefined
}

/** Undefined if the table above has no name for it. */
export function toTorchDType(dtype: DType): string | undefined {
  return torchNameOf.get(dtype)
}

export function showShape(shape: readonly number[]): string {
  return `[${shape.join(', ')}]`
}

/** Bytes of a row-major tensor, or null if the shape is not a list of sizes or the product exceeds 2^53. */
export function byteLengthOf(dtype: DType, shape: readonly unknown[]): number | null {
  let bytes: number = itemSize[dtype]
  for (const size of shape) {
    if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) return null
    bytes *= size
    if (!Number.isSafeInteger(bytes)) return null
  }
  return bytes
}

/** A tensor name that is valid in a file: not empty, no control characters, at most 1024 characters. */
export function checkName(where: string, name: string): void {
  if (name.length > 0 && name.length <= 1024 && !/[\u0000-\u001f\u007f]/.test(name)) return
  const expected = 'a tensor name of 1 to 1024 characters without control characters'
  throw new Mismatch({ where, field: JSON.stringify(name.slice(0, 80)), expected, got: `${name.length} characters` })
}
