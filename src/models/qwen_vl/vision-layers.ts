// Parts that the vision towers of both generations share. P patches, h width, H heads, D head size.
import { patchRotator } from '../../kernels/index.ts'
import { Linear, Module, type Rope, type RopeTable, rotate, tableOf, weight } from '../../nn/index.ts'
import {
  attention,
  cat,
  flashAttention,
  hasFlashAttention,
  int64Tensor,
  type Sequences,
  type Tensor,
  tensor,
  tidy,
  tidyNoGrad,
} from '../../tensor/index.ts'
import type { QwenVisionConfig } from './vision-config.ts'

/** Of every norm; fixed in the class. */
export const eps = 1e-6

class PatchProjection extends Module {
  weight: Tensor // [h, 3, frames, p, p]
  bias?: Tensor

  constructor(cfg: QwenVisionConfig, hasBias: boolean) {
    super()
    const { hidden_size: h, in_channels, temporal_patch_size: frames, patch_size: p } = cfg
    this.weight = weight(h, in_channels, frames, p, p)
    if (hasBias) this.bias = weight(h)
  }
}

export class PatchEmbed extends Module {
  readonly proj: PatchProjection

  constructor(cfg: QwenVisionConfig, { bias }: { bias: boolean }) {
    super()
    this.proj = new PatchProjection(cfg, bias)
  }

  /** Kernel and stride are equal: the convolution is a linear layer over the flat patch. */
  forward(patches: Tensor): Tensor {
    const { weight, bias } = this.proj
    return patches.linear(weight.flatten({ startDim: 1 }), bias ? { bias } : {})
  }
}

/** Rows that attend to each other: consecutive segments, and runs of segments of one length. */
interface Segments {
  runs: readonly { from: number; length: number; count: number }[]
  /** For the fused kernel, if the device has one. */
  sequences: Sequences | null
}

class VisionAttention extends Module {
  readonly qkv: Linear // [3h, h]
  readonly proj: Linear
  readonly #heads: number

  constructor(cfg: Pick<QwenVisionConfig, 'hidden_size' | 'num_heads'>) {
    super()
    this.qkv = new Linear(cfg.hidden_size, 3 * cfg.hidden_size)
    this.proj = new Linear(cfg.hidden_size, cfg.hidden_size)
    this.#heads = cfg.num_heads
  }

  forward(x: Tensor, rope: RopeTable, segments: Segments): Tensor {
    const [P, h] = x.shape as [number, number]
    const H = this.#heads
    const packed = this.qkv.forward(x).view([P, 3, H, h / H])
    const inPlace = packed.requiresGrad ? null : patchRotator(H, h / H, x)
    inPlace?.(packed, rope)
    const [q, k, v] = [0, 1, 2].map((i) => packed.select(1, i)) as [Tensor, Tensor, Tensor]
    const turned = (t: Tensor) => (inPlace ? t : rotate(t.to('float32'), rope).to(x.dtype)) // [P, H, D]
    return this.proj.forward(attendInside(turned(q), turned(k), v, segments))
  }
}

/** [P, H, D] -> [P, h]: one call for all segments, or one for every run of segments of one length. */
function attendInside(q: Tensor, k: Tensor, v: Tensor, { runs, sequences }: Segments): Tensor {
  const [P, H, D] = q.shape as [number, number, number]
  if (sequences && q.dtype === 'bfloat16' && !q.requiresGrad)
    return flashAttention(q, k, v, sequences).out.view([P, H * D])
  const parts = runs.map(({ from, length, count }) => {
    const batch = (t: Tensor) =>
      t
        .narrow(0, from, count * length)
        .view([count, length, H, D])
        .transpose(1, 2)
    return attention(batch(q), batch(k), batch(v))
      .transpose(1, 2)
      .reshape([count * length, H * D])
  })
  return parts.length === 1 ? parts[0]! : cat(parts)
}

export const indices = (rows: Int32Array, device: string) => int64Tensor(rows, { device })

/** Where each row of a permutation is. */
export function inverseOf(order: readonly number[]): Int32Array {
  const back = new Int32Array(order.length)
  for (const [i, row] of order.entries()) back[row] = i
  return back
}

interface Layer extends Module {
  forward(x: Tensor): Tensor
}

/** Attention and feed-forward network, each with a norm before it and a residual connection. */
export class VisionBlock extends Module {
  readonly norm1: Layer
  readonly norm2: Layer
  readonly attn: VisionAttention
  readonly mlp: Layer

  constructor(cfg: QwenVisionConfig, norm: () => Layer, mlp: Layer) {
    super()
    this.norm1 = norm()
    this.norm2 = norm()
    this.attn = new VisionAttention(cfg)
    this.mlp = mlp
  }

  forward(x: Tensor, rope: RopeTable, segments: Segments): Tensor {
    return tidy(() => {
      const y = x.add(this.attn.forward(this.norm1.forward(x), rope, segments))
      return y.add(this.mlp.forward(this.norm2.forward(y)))
    })
  }
}

/** Tables of patches at the given rows and columns, [P, 1, D], float32: half the frequencies follow the row, half the column. */
export function patchRotation(rope: Rope, places: readonly (readonly [number, number])[], device: string): RopeTable {
  return tidyNoGrad(() => {
    const [rows, columns] = [new Float32Array(places.length), new Float32Array(places.length)]
    for (let i = 0; i < places.length; i++) [rows[i], columns[i]] = places[i]!
    const anglesOf = (at: Float32Array) => rope.angles(tensor(at, { device }))
    const angles = cat([anglesOf(rows), anglesOf(columns)], { dim: -1 }) // [P, D/2]
    const { cos, sin } = tableOf(angles, angles)
    return { cos: cos.unsqueeze(1), sin: sin.unsqueeze(1) }
  })
}

/** Segments of the given lengths, one after the other. */
export function segmentsOf(lengths: readonly number[], device: string): Segments {
  const runs: { from: number; length: number; count: number }[] = []
  const starts = Int32Array.of(0, ...lengths)
  for (const [i, length] of lengths.entries()) {
    const from = starts[i]!
    starts[i + 1] = from + length
    const last = runs.at(-1)
    if (last?.length === length) last.count++
    else runs.push({ from, length, count: 1 })
  }
  if (!hasFlashAttention(device)) return { runs, sequences: null }
  const [at, longest] = [tensor(starts, { device }), Math.max(...lengths)]
  const sequences = { queryStarts: at, keyStarts: at, longestQuery: longest, longestKey: longest, causal: false }
  return { runs, sequences }
}
