// Frozen matrices in fewer bits. int8: every row as whole numbers from -127 to 127 and one scale. nf4: every block of 64 columns of a row
// as codes of 4 bits for the values of QLoRA's NormalFloat (arXiv 2305.14314) and one scale, the block's largest magnitude. Two codes are a
// byte, the first one in its upper half, as in bitsandbytes. Scales are in the dtype of the run. A product reads value times scale.
import { Mismatch } from '../core/index.ts'
import {
  type DType,
  embedding,
  keep,
  searchsorted,
  type Tensor,
  tensor,
  tidy,
  tidyNoGrad,
  where,
} from '../tensor/index.ts'
import type { Linear } from './layers.ts'

/** How frozen matrices are stored: in the dtype of the model, in 8 bit, or in 4 bit. */
export const frozenForms = ['exact', 'int8', 'nf4'] as const
export type FrozenForm = (typeof frozenForms)[number]
export type QuantizedForm = Exclude<FrozenForm, 'exact'>

const largestNumber = 127
const block = 64
/** The 16 values of a code in float32, as bitsandbytes publishes them. */
export const nf4Values: readonly number[] = [
  ...[-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334],
  ...[-0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224],
  ...[0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1],
]

interface Quantized {
  numbers: Tensor // int8 [out, in]; nf4: uint8 [out, 32 B], the last of B blocks filled up
  scale: Tensor // [out, 1]; nf4: [out, B]
}

/** A matrix [out, in] in fewer bits. The scale is rounded to `dtype` before the values are measured by it. New tensors of the current scope. */
export function quantize(matrix: Tensor, form: QuantizedForm, dtype: DType): Quantized {
  return tidyNoGrad(() => {
    const wide = matrix.detach().to('float32')
    return form === 'int8' ? toInt8(wide, dtype) : toNf4(wide, dtype)
  })
}

/** Numbers times scale are within half a scale of the matrix. */
function toInt8(wide: Tensor, dtype: DType): Quantized {
  const scale = scaleOf(wide, largestNumber, dtype)
  const numbers = wide.div(scale.to('float32')).round().clamp_({ min: -largestNumber, max: largestNumber })
  return { numbers: numbers.to('int8'), scale }
}

/** The nearest value for each; a tie goes to the smaller. */
function toNf4(wide: Tensor, dtype: DType): Quantized {
  const [out, columns] = wide.shape as [number, number]
  const blocks = wide.constantPadNd([0, -columns & (block - 1)]).view([out, -1, block])
  const scale = scaleOf(blocks, 1, dtype)
  const middles = nf4Values.slice(1).map((value, i) => (value + nf4Values[i]!) / 2)
  const borders = tensor(Float32Array.from(middles), { device: wide.device })
  const codes = searchsorted(borders, blocks.div(scale.to('float32')), { outInt32: true }).view([out, -1, 2])
  const numbers = codes.select(2, 0).mul(16).add(codes.select(2, 1))
  return { numbers: numbers.to('uint8'), scale: scale.squeeze(2) }
}

function scaleOf(values: Tensor, largest: number, dtype: DType): Tensor {
  const step = values
    .abs()
    .amax({ dim: [-1], keepdim: true })
    .mul(1 / largest) // dividing by a number rounds differently on a GPU
    .to(dtype)
  return where(step.eq(0), step.add(1), step) // nothing but zeros
}

/** Bits of a stored number; null: a tensor that is not quantized. */
export const bitsOf = ({ dtype }: Pick<Tensor, 'dtype'>): 8 | 4 | null =>
  dtype === 'int8' ? 8 : dtype === 'uint8' ? 4 : null

/** Whether a tensor is the numbers of a matrix in 8 or 4 bit. */
export const isQuantized = (t: Tensor): boolean => bitsOf(t) !== null

/** Stores a linear layer's weight in fewer bits permanently; the old tensor is freed. `matrix`: its values, if the layer has none yet. */
export function storeQuantized(linear: Linear, form: QuantizedForm, dtype: DType, matrix = linear.weight): void {
  const { numbers, scale } = quantize(matrix, form, dtype)
  linear.weight.dispose()
  linear.weight = keep(numbers)
  linear.weight_scale = keep(scale)
}

/** A product with a quantized matrix as it is; null if it must be dequantized. */
type ProductKernel = (x: Tensor, matrix: Quantized & { bias: Tensor | null }) => Tensor | null

let product: ProductKernel | null = null
/** A matrix in the dtype of its scale, in `place` if given; `factors` times `inputs` is added before the rounding. Null: ops must do it. */
type WidenKernel = (
  matrix: Quantized,
  low?: { factors: Tensor; inputs: Tensor } | null,
  place?: Tensor,
) => Tensor | null

let widen: WidenKernel = () => null

/** Runs `fn` while `chosen` is asked first for every product with a quantized matrix. It records no gradient. */
export function withProduct<R>(chosen: ProductKernel | null, fn: () => R): R {
  const before = product
  product = chosen
  try {
    return fn()
  } finally {
    product = before
  }
}

/** What is asked first for a matrix in the dtype of its scale. */
export function widenWith(kernel: WidenKernel): void {
  widen = kernel
}

/** False if the kernel does not cover it. */
export const widenInto = (place: Tensor, matrix: Quantized, low: Parameters<WidenKernel>[1]): boolean =>
  widen(matrix, low, place) !== null

/** The dequantized matrix exists for this product only, or until its backward if a gradient is recorded. */
export function multiplyQuantized(x: Tensor, matrix: Quantized, bias: Tensor | null): Tensor {
  return product?.(x, { ...matrix, bias }) ?? tidy(() => x.linear(dequantize(matrix, x.size(-1)).to(x.dtype), { bias }))
}

/** The matrix [out, columns] in the dtype of its scale. */
export function dequantize(matrix: Quantized, columns: number): Tensor {
  return tidyNoGrad(() => (widen(matrix) ?? valuesOf(matrix)).narrow(1, 0, columns))
}

function valuesOf({ numbers, scale }: Quantized): Tensor {
  if (bitsOf(numbers) === 8) return numbers.mul(scale)
  const values = embedding(pairsFor(scale), numbers.to('int32')) // [out, 32 B, 2]
  const rows = scale.size(0)
  return values.view([rows, -1, block]).mul(scale.unsqueeze(2)).view([rows, -1])
}

/** Shared by all matrices: as many as there are devices and dtypes. */
const tables = new Map<string, Tensor>()

/** Both values of each byte, [256, 2]. */
function pairsFor({ device, dtype }: Tensor): Tensor {
  const key = `${device} ${dtype}`
  const known = tables.get(key)
  if (known) return known
  const pairs = Float32Array.from({ length: 512 }, (_, i) => nf4Values[i % 2 === 0 ? i >> 5 : (i >> 1) & 15]!)
  const table = keep(tidy(() => tensor(pairs, [256, 2], { device }).to(dtype)))
  tables.set(key, table)
  return table
}

/** A rounded weight neither trains nor takes up adapters: what is built on must be the weight itself. */
export function requireExact(weight: Tensor, where: string, field: string): void {
  if (!isQuantized(weight)) return
  const hint = 'open the model with frozenWeights exact'
  const got = `one in ${bitsOf(weight)} bit`
  throw new Mismatch({ where, field, expected: 'a weight that is stored exactly', got, hint })
}
