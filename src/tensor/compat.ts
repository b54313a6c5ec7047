// Ops that an old libtorch lacks, under the names and meanings of the new ones. The only file that cares which torch it is.
import { hasOp, op, planOf } from '../engine/index.ts'
import { type DType, isFloating } from './dtype.ts'
import { ones } from './ops.gen.ts'
import type { Tensor } from './tensor.ts'

const epsilon: Partial<Record<DType, number>> = {
  float32: 1.1920928955078125e-7,
  float64: 2.220446049250313e-16,
  bfloat16: 0.0078125,
  float16: 0.0009765625,
}

/** x / rms(x) over the last dimension, in float32 inside, times the weight. One kernel on CUDA where torch has it. */
export function rmsNorm(x: Tensor, weight: Tensor | null, eps?: number): Tensor {
  if (x.device.startsWith('cuda') && hasOp('rms_norm') && (!weight || weight.dtype === x.dtype))
    return op('rms_norm')(x, [x.size(-1)], { weight, eps: eps ?? epsilon[x.dtype] ?? 1e-6 }) as Tensor
  const wide = x.dtype === 'float64' || x.dtype === 'float32' ? x : x.to('float32')
  const scale = wide
    .mul(wide)
    .mean(-1, { keepdim: true })
    .add(eps ?? epsilon[x.dtype] ?? 1e-6)
    .rsqrt()
  const out = wide.mul(scale)
  const back = out.dtype === x.dtype ? out : out.to(x.dtype)
  return weight ? back.mul(weight) : back
}

/** The gradient of rmsNorm's x. */
export function rmsNormBackward(grad: Tensor, x: Tensor, weight: Tensor, eps: number): Tensor {
  const wide = (t: Tensor) => (t.dtype === 'float64' ? t : t.to('float32'))
  const [g, h] = [wide(grad).mul(wide(weight)), wide(x)]
  const scale = h.mul(h).mean(-1, { keepdim: true }).add(eps).rsqrt() // [.., 1]
  const along = g.mul(h).mean(-1, { keepdim: true }).mul(scale).mul(scale)
  const out = g.sub(h.mul(along)).mul(scale)
  return out.dtype === x.dtype ? out : out.to(x.dtype)
}

/** out = the gradient of silu at x; without gradient. */
export function siluBackwardInto(out: Tensor, grad: Tensor, x: Tensor): void {
  op('silu_backward.grad_input')(grad, x, { gradInput: out })
}

/** Maps [B, C, h, w] resized bilinearly to [B, C, height, width]. Torch 1.13 takes maps of one channel for channels last, which is 5 times slower. */
export function resizeMaps(maps: Tensor, height: number, width: number): Tensor {
  const [B, C, h, w] = maps.shape as [number, number, number, number]
  return maps
    .reshape([1, B * C, h, w])
    .upsampleBilinear2d([height, width], false)
    .view([B, C, height, width])
}

interface AttentionOptions {
  /** Boolean (true = attend) or additive, broadcast to [B, H, Tq, Tk]. */
  mask?: Tensor | null
  causal?: boolean
  scale?: number
  /** Fewer key/value heads than query heads, each serving a run of them. */
  groupedHeads?: boolean
}

/** softmax(q k^T scale + mask) v for [B, H, T, D]; fused where libtorch has it. */
export function attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions = {}): Tensor {
  const groups = options.groupedHeads ? q.size(1) / k.size(1) : 1
  if (groups > 1 && takesGroups(q, options)) return fused(q, k, v, options, { enableGqa: true })
  if (!hasOp('scaled_dot_product_attention') || (groups > 1 && isDecodeStep(q, options)))
    return plainAttention(q, k, v, options, groups)
  if (groups > 1 && q.device === 'cpu' && q.size(-2) === 1 && (options.mask?.size(1) ?? 1) === 1)
    return fused(q.reshape([q.size(0), k.size(1), groups, -1]), k, v, options).view(q.shape) // a group's heads are the tokens of one
  const keys = groups > 1 ? k.repeatInterleave(groups, { dim: 1 }) : k
  const values = groups > 1 ? v.repeatInterleave(groups, { dim: 1 }) : v
  return fused(q, keys, values, options)
}

function fused(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions, more: { enableGqa?: true } = {}): Tensor {
  const named = { attnMask: options.mask ?? null, isCausal: options.causal ?? false, scale: options.scale ?? null }
  return op('scaled_dot_product_attention')(q, k, v, { ...named, ...more }) as Tensor
}

let groupsKnown: boolean | undefined
/** Whether the fused op takes fewer key heads as they are (torch 2.5, CUDA), instead of keys and values repeated for every query head. */
function takesGroups(q: Tensor, options: AttentionOptions): boolean {
  if (!q.device.startsWith('cuda') || options.mask) return false
  groupsKnown ??= planOf('scaled_dot_product_attention')?.args.some((a) => a.name === 'enable_gqa') ?? false
  return groupsKnown
}

/** Single queries with a mask: of torch's fused kernels only cuDNN's, which is off, reads a cache once for all heads of a group. */
const isDecodeStep = (q: Tensor, options: AttentionOptions): boolean =>
  q.device.startsWith('cuda') && Boolean(options.mask) && q.size(-2) === 1

/** The queries of all heads that one key head serves are the rows of one product: keys and values are never repeated. */
function plainAttention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions, groups: number): Tensor {
  const [B, H, Tq] = q.shape as [number, number, number, number]
  const product = (a: Tensor, b: Tensor) =>
    groups === 1
      ? a.matmul(b)
      : a
          .reshape([B, H / groups, groups * Tq, -1])
          .matmul(b)
          .view([B, H, Tq, -1])
  const scale = options.scale ?? 1 / Math.sqrt(q.size(-1))
  let scores = product(q.mul(scale), k.transpose(-2, -1)) // [B, H, Tq, Tk]
  const without = (seen: Tensor) => scores.maskedFill(seen.logicalNot(), Number.NEGATIVE_INFINITY)
  if (options.causal) scores = without(ones([q.size(-2), k.size(-2)], { dtype: 'bool', device: q.device }).tril())
  if (options.mask) scores = isFloating(options.mask.dtype) ? scores.add(options.mask) : without(options.mask)
  const wide = scores.dtype === 'bfloat16' || scores.dtype === 'float16' ? scores.to('float32') : scores
  const weights = wide.softmax(-1)
  return product(weights.dtype === v.dtype ? weights : weights.to(v.dtype), v)
}

/** Whether one fused AdamW call over many tensors exists (torch 2, CUDA and CPU). */
export function hasFusedAdamW(): boolean {
  return hasOp('_fused_adamw_')
}
