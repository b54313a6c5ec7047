// Matrix products that write where they are told, without gradient: what hand-written derivatives are made of.
import { hasOp, op } from '../engine/index.ts'
import type { Tensor } from './tensor.ts'

/** a b as a new tensor; [n, k] [k, m]. */
export function product(a: Tensor, b: Tensor): Tensor {
  return op('mm')(a, b) as Tensor
}

/** out = a b */
export function productInto(out: Tensor, a: Tensor, b: Tensor): void {
  op('mm.out')(a, b, { out })
}

/** bias + a b as a new tensor. */
export function biasedProduct(bias: Tensor, a: Tensor, b: Tensor): Tensor {
  return op('addmm')(bias, a, b) as Tensor
}

/** out += a b */
export function addProduct(out: Tensor, a: Tensor, b: Tensor): void {
  op('addmm_')(out, a, b)
}

/** a b in float32, also of narrower factors: sums are not rounded to their dtype where torch can keep them. */
export function wideProduct(a: Tensor, b: Tensor): Tensor {
  if (a.dtype === 'float32' || a.dtype === 'float64') return product(a, b)
  if (a.device.startsWith('cuda') && hasOp('mm.dtype')) return op('mm.dtype')(a, b, 'float32') as Tensor
  return product(a, b).to('float32')
}

/** Values of other tensors, which may be of another dtype, index by index. */
export function copyAll(to: readonly Tensor[], from: readonly Tensor[]): void {
  if (to.length > 0 && to[0]!.device.startsWith('cuda') && hasOp('_foreach_copy_')) op('_foreach_copy_')(to, from)
  else to.forEach((t, i) => void t.copy_(from[i]!))
}

/** Other sizes and strides over the memory of a tensor that begins its storage; `from` in elements. */
export function windowOf(x: Tensor, size: readonly number[], stride: readonly number[], from: number): Tensor {
  return op('as_strided')(x, size, stride, { storageOffset: from }) as Tensor
}
