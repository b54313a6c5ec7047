// Many tensors as few flat ones. With three or more ranks the transport adds in an order that depends on a value's position in its
// bucket. The layout therefore depends only on the list of tensors, never on which of them have a gradient.
import { Mismatch } from '../core/index.ts'
import { cat, keep, type Tensor, tidyNoGrad, zeros } from '../tensor/index.ts'
import type { NamedTensors } from './world.ts'

/** Float32 values in a bucket: 256 MiB. A tensor with more has its own bucket. */
export const bucketValues = 64 * 1024 * 1024

export interface Slot {
  name: string
  tensor: Tensor
  /** First value in the bucket. */
  offset: number
  numel: number
}

export interface Bucket {
  device: string
  numel: number
  slots: Slot[]
}

/** Buckets in registration order, each of one device. */
export function layBuckets(tensors: NamedTensors, limit = bucketValues): Bucket[] {
  const buckets: Bucket[] = []
  const open = new Map<string, Bucket>()
  for (const [name, tensor] of tensors) {
    const { device, numel } = tensor
    let bucket = open.get(device)
    if (!bucket || bucket.numel + numel > limit) {
      bucket = { device, numel: 0, slots: [] }
      open.set(device, bucket)
      buckets.push(bucket)
    }
    bucket.slots.push({ name, tensor, offset: bucket.numel, numel })
    bucket.numel += numel
  }
  return buckets
}

/** A float32 copy of the gradients, zeros for a missing one; the caller frees it. */
export function packGradients({ device, slots }: Bucket): Tensor {
  const flat = ({ tensor, numel }: Slot) => tensor.grad()?.reshape([numel]) ?? zeros([numel], { device })
  return tidyNoGrad(() => keep(cat(slots.map(flat)).to('float32')))
}

/** Gradients take the values of the bucket; a tensor that has a gradient nowhere keeps none. */
export function unpackGradients(bucket: Bucket, flat: Tensor, used: ReadonlySet<string>): void {
  tidyNoGrad(() => {
    for (const { name, tensor, offset, numel } of bucket.slots) {
      if (!used.has(name)) continue
      const values = flat.narrow(0, offset, numel).reshape([...tensor.shape])
      const grad = tensor.grad()
      if (grad) grad.copy_(values)
      else tensor.setGrad(zeros([...tensor.shape], { dtype: tensor.dtype, device: tensor.device }).copy_(values))
    }
  })
}

export function requireFloating(tensors: NamedTensors): void {
  for (const [name, { dtype }] of tensors) {
    if (dtype === 'float32' || dtype === 'bfloat16' || dtype === 'float16') continue
    const hint = 'gradients are summed in float32'
    throw new Mismatch({ where: 'world', field: name, expected: 'float32, bfloat16 or float16', got: dtype, hint })
  }
}
