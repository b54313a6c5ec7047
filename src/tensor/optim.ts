// Optimizer loops over lists of tensors: one fused call if libtorch has one, else foreach ops. They write in place.
import { Mismatch } from '../core/index.ts'
import { buffer, hasOp, native, op } from '../engine/index.ts'
import { noGrad, tidyNoGrad } from './autograd.ts'
import { hasFusedAdamW } from './compat.ts'
import {
  _foreachAdd_,
  _foreachAddcdiv_,
  _foreachAddcmul_,
  _foreachDiv_,
  _foreachMul_,
  _foreachNorm,
  _foreachSqrt,
  cat,
  stack,
} from './ops.gen.ts'
import { type Tensor, tensor } from './tensor.ts'

/** Tensors of one AdamW call, index by index. */
interface AdamWLists {
  params: readonly Tensor[]
  grads: readonly Tensor[]
  expAvgs: readonly Tensor[]
  expAvgSqs: readonly Tensor[]
}

export interface AdamWNumbers {
  lr: number
  beta1: number
  beta2: number
  eps: number
  weightDecay: number
  /** 1 for the first update: the same for every tensor of the call. */
  step: number
}

/** cpu: the addon's float32 loop. fused: torch 2's own kernel. foreach: ops, any float dtype. */
type AdamWPath = 'cpu' | 'fused' | 'foreach'

export function adamwPath(t: Tensor): AdamWPath {
  if (t.device === 'cpu' && t.dtype === 'float32') return 'cpu'
  return t.device.startsWith('cuda') && hasFusedAdamW() ? 'fused' : 'foreach'
}

/** One decoupled AdamW update of all tensors, which share a device and a dtype. */
export function adamwUpdate(lists: AdamWLists, h: AdamWNumbers, path?: AdamWPath): void {
  const first = lists.params[0]
  if (!first) return
  const chosen = path ?? adamwPath(first)
  const update = { cpu: cpuUpdate, fused: fusedUpdate, foreach: foreachUpdate }[chosen]
  tidyNoGrad(() => update(lists, h))
}

function cpuUpdate(lists: AdamWLists, h: AdamWNumbers): void {
  const { params, grads, expAvgs, expAvgSqs } = lists
  const correction = [1 - h.beta1 ** h.step, 1 - h.beta2 ** h.step]
  const words = [h.lr, h.beta1, h.beta2, h.eps, h.weightDecay, ...correction, params.length]
  params.forEach((p, i) => {
    words.push(p.handle, grads[i]!.handle, expAvgs[i]!.handle, expAvgSqs[i]!.handle)
  })
  buffer.set(words)
  native().adamw()
}

function fusedUpdate(lists: AdamWLists, h: AdamWNumbers): void {
  const { params, grads, expAvgs, expAvgSqs } = lists
  const step = tensor(h.step, { device: params[0]!.device }) // float32, as torch keeps it
  const steps = params.map(() => step)
  const { lr, beta1, beta2, eps, weightDecay } = h
  const named = { lr, beta1, beta2, eps, weightDecay, amsgrad: false, maximize: false }
  op('_fused_adamw_')(params, grads, expAvgs, expAvgSqs, [], steps, named)
}

function foreachUpdate(lists: AdamWLists, h: AdamWNumbers): void {
  const { params, grads, expAvgs, expAvgSqs } = lists
  if (h.weightDecay !== 0) _foreachMul_(params, 1 - h.lr * h.weightDecay)
  _foreachMul_(expAvgs, h.beta1)
  _foreachAdd_(expAvgs, grads, { alpha: 1 - h.beta1 })
  _foreachMul_(expAvgSqs, h.beta2)
  _foreachAddcmul_(expAvgSqs, grads, grads, { value: 1 - h.beta2 })
  const denominators = _foreachSqrt(expAvgSqs)
  _foreachDiv_(denominators, Math.sqrt(1 - h.beta2 ** h.step))
  _foreachAdd_(denominators, h.eps)
  _foreachAddcdiv_(params, expAvgs, denominators, { value: -h.lr / (1 - h.beta1 ** h.step) })
}

/** target = decay * target + (1 - decay) * source, in place; all targets share a device and a dtype with their sources. */
export function emaUpdate(targets: readonly Tensor[], sources: readonly Tensor[], decay: number): void {
  const first = targets[0]
  if (!first) return
  tidyNoGrad(() => {
    if (first.device === 'cpu' && first.dtype === 'float32') cpuEma(targets, sources, decay)
    else if (hasOp('_foreach_lerp_.Scalar')) op('_foreach_lerp_.Scalar')(targets, sources, 1 - decay)
    else targets.forEach((t, i) => void t.lerp_(sources[i]!, 1 - decay))
  })
}

function cpuEma(targets: readonly Tensor[], sources: readonly Tensor[], decay: number): void {
  const words = [decay, targets.length] // gathered first: asking for a shape or a copy uses the buffer too
  targets.forEach((t, i) => {
    const source = sources[i]!
    if (source.numel !== t.numel)
      throw new Mismatch({ where: 'ema', expected: `[${t.shape}]`, got: `[${source.shape}]` })
    words.push(t.handle, source.contiguous().handle)
  })
  buffer.set(words)
  native().ema()
}

/** Euclidean norm of each tensor and of all together, read in one go. */
export function normsOf(tensors: readonly Tensor[]): { total: number; each: number[] } {
  if (tensors.length === 0) return { total: 0, each: [] }
  return tidyNoGrad(() => {
    const each = stack(_foreachNorm(tensors)) // [n]
    const all = cat([each, each.norm().unsqueeze(0)]).numbers()
    return { total: all[tensors.length]!, each: all.slice(0, -1) }
  })
}

/** tensor *= factor, in place. */
export function scaleAll(tensors: readonly Tensor[], factor: number): void {
  if (tensors.length > 0) noGrad(() => _foreachMul_(tensors, factor))
}
