// Matrix products that write into given tensors, without gradient: what hand-written derivatives are made of.
import { buffer, hasOp, native, op } from '../engine/index.ts'
import { type Tensor, tensorOfHandle } from './tensor.ts'

/** Some columns of a contiguous matrix, or all; read across where `transposed`. A number refers to an earlier result in the list. */
export interface Factor {
  readonly of: Tensor | number
  readonly columns?: readonly [from: number, count: number]
  readonly transposed?: boolean
}

export interface Product {
  readonly a: Factor
  readonly b: Factor
  /** Where the result goes; a new tensor otherwise. */
  readonly out?: Factor
  /** To what is there already. */
  readonly add?: boolean
  /** Of a new tensor: [m] added to each row. */
  readonly bias?: Tensor | null
  /** Of a new tensor: float32, also from narrower factors, whose sums are not rounded where torch can keep them. */
  readonly wide?: boolean
  /** Of a new tensor without bias: times this. */
  readonly scale?: number
  /** The new tensor is [parts, n, m] in float32: sums over so many equal parts of k. */
  readonly parts?: number
}

function writeFactor({ of, columns, transposed }: Factor, at: number): number {
  buffer[at] = typeof of === 'number' ? -2 - of : of.handle
  buffer[at + 1] = columns ? columns[0] : 0
  buffer[at + 2] = columns ? columns[1] : -1
  buffer[at + 3] = transposed ? 1 : 0
  return at + 4
}

/** Products one after the other, in one call of the engine; the new tensors among their results, in order. */
export function products(list: readonly Product[]): Tensor[] {
  let at = 1
  buffer[0] = list.length
  for (const { a, b, out, add, bias, wide, scale, parts } of list) {
    at = writeFactor(a, at)
    at = writeFactor(b, at)
    if (out) at = writeFactor(out, at)
    else {
      buffer[at] = -1
      buffer[at + 1] = parts ?? 1
      at += 4
    }
    buffer[at] = bias ? bias.handle : -1
    buffer[at + 1] = wide ? 1 : 0
    buffer[at + 2] = scale ?? 1
    buffer[at + 3] = add ? 1 : 0
    at += 4
  }
  native().products()
  const made: Tensor[] = []
  for (let i = 0; i < list.length; i++) if (buffer[i] !== -1) made.push(tensorOfHandle(buffer[i]!))
  return made
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
