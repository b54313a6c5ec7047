// Frozen matrices in 8 bit: every row as whole numbers from -127 to 127 and one scale. What a product reads is numbers times scale.
import { Mismatch } from '../core/index.ts'
import { type DType, keep, type Tensor, tidy, tidyNoGrad, where } from '../tensor/index.ts'
import type { Linear } from './layers.ts'

/** How frozen matrices are stored: in the dtype of the model, or in 8 bit. */
export const frozenForms = ['exact', 'int8'] as const
export type FrozenForm = (typeof frozenForms)[number]

const largestNumber = 127

interface RoundedRows {
  numbers: Tensor // int8 [out, in]
  scale: Tensor // [out, 1]
}

/**
 * A matrix [out, in] in 8 bit. The scale is rounded to `dtype` before the rows are measured by it, so that numbers times scale is within
 * half a scale of the matrix. New tensors of the current scope.
 */
export function roundRows(matrix: Tensor, dtype: DType): RoundedRows {
  return tidyNoGrad(() => {
    const wide = matrix.detach().to('float32')
    const step = wide
      .abs()
      .amax({ dim: [1], keepdim: true })
      .mul(1 / largestNumber) // dividing by a number rounds differently on a GPU
      .to(dtype)
    const scale = where(step.eq(0), step.add(1), step) // a row of zeros
    const numbers = wide.div(scale.to('float32')).round().clamp_({ min: -largestNumber, max: largestNumber })
    return { numbers: numbers.to('int8'), scale }
  })
}

/** Whether a tensor is the numbers of a matrix in 8 bit. */
export const isInt8 = ({ dtype }: Tensor): boolean => dtype === 'int8'

/** Stores a linear layer's weight in 8 bit permanently; the old tensor is freed. `matrix`: its values, if the layer has none yet. */
export function storeInt8(linear: Linear, dtype: DType, matrix: Tensor = linear.weight): void {
  const { numbers, scale } = roundRows(matrix, dtype)
  linear.weight.dispose()
  linear.weight = keep(numbers)
  linear.weight_scale = keep(scale)
}

/** A product with a matrix in 8 bit as it is; null if it must be dequantized. */
type Product8 = (x: Tensor, matrix: RoundedRows & { bias: Tensor | null }) => Tensor | null

let product: Product8 | null = null

/** Runs `fn` while `chosen` is asked first for every product with a matrix in 8 bit. It records no gradient. */
export function withProduct8<R>(chosen: Product8 | null, fn: () => R): R {
  const before = product
  product = chosen
  try {
    return fn()
  } finally {
    product = before
  }
}

/** The dequantized matrix exists for this product only, or until its backward if a gradient is recorded. */
export function multiply8(x: Tensor, numbers: Tensor, scale: Tensor, bias: Tensor | null): Tensor {
  return product?.(x, { numbers, scale, bias }) ?? tidy(() => x.linear(numbers.mul(scale).to(x.dtype), { bias }))
}

/** A rounded weight neither trains nor takes up adapters: what is built on must be the weight itself. */
export function requireExact(weight: Tensor, where: string, field: string): void {
  if (!isInt8(weight)) return
  const hint = 'open the model with frozenWeights exact'
  throw new Mismatch({ where, field, expected: 'a weight that is stored exactly', got: 'one in 8 bit', hint })
}
