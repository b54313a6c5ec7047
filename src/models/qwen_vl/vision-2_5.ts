// The vision tower of Qwen2.5-VL. P patches, U units of merge x merge patches, h width, H heads, D head size. Unusual: most blocks
// attend inside windows, so units are put into window order before the first block and back after the merger; RMSNorm; rotation by
// row and column; no class token, no position embedding.

import { GatedMlp } from '../../llm/index.ts'
import { Linear, Module, RMSNorm, Rope, type RopeTable, rotate, tableOf, WeightOnly } from '../../nn/index.ts'
import { attention, cat, int64Tensor, noGrad, type Tensor, tidy } from '../../tensor/index.ts'
import type { VisionOutput, Watch } from './generations.ts'
import { type Grid, patchOrder } from './processor.ts'
import type { QwenVisionConfig } from './vision-config.ts'

const eps = 1e-6 // fixed in the class

/** Rows that attend to each other, all of one length: [count, length] indices. */
export type Segments = readonly { length: number; rows: Int32Array }[]

export class VisionAttention extends Module {
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
    const [q, k, v] = [0, 1, 2].map((i) => packed.select(1, i)) as [Tensor, Tensor, Tensor]
    const turned = (t: Tensor) => rotate(t.to('float32'), rope).to(x.dtype) // [P, H, D]
    return this.proj.forward(attendInside(turned(q), turned(k), v, segments))
  }
}

/** [P, H, D] -> [P, h]: segments of one length are one batch. */
function attendInside(q: Tensor, k: Tensor, v: Tensor, segments: Segments): Tensor {
  const [P, H, D] = q.shape as [number, number, number]
  const parts = segments.map(({ length, rows }) => {
    const index = indices(rows, q.device)
    const [a, b, c] = [q, k, v].map((t) => t.indexSelect(0, index).view([-1, length, H, D]).transpose(1, 2)) as [
      Tensor,
      Tensor,
      Tensor,
    ]
    return attention(a, b, c)
      .transpose(1, 2)
      .reshape([rows.length, H * D])
  })
  const order = segments.flatMap((s) => Array.from(s.rows))
  const back = new Int32Array(P)
  order.forEach((row, i) => {
    back[row] = i
  })
  return cat(parts).indexSelect(0, indices(back, q.device))
}

export const indices = (rows: Int32Array, device: string) => int64Tensor(rows, { device })

class Block extends Module {
  readonly norm1: RMSNorm
  readonly norm2: RMSNorm
  readonly attn: VisionAttention
  readonly mlp: GatedMlp

  constructor(cfg: QwenVisionConfig) {
    super()
    this.norm1 = new RMSNorm(cfg.hidden_size, eps)
    this.norm2 = new RMSNorm(cfg.hidden_size, eps)
    this.attn = new VisionAttention(cfg)
    this.mlp = new GatedMlp(cfg, true)
  }

  forward(x: Tensor, rope: RopeTable, segments: Segments): Tensor {
    return tidy(() => {
      const y = x.add(this.attn.forward(this.norm1.forward(x), rope, segments))
      return y.add(this.mlp.forward(this.norm2.forward(y)))
    })
  }
}

class PatchEmbed extends Module {
  readonly proj: WeightOnly // [h, 3, frames, p, p]

  constructor(cfg: QwenVisionConfig) {
    super()
    const { hidden_size, in_channels, temporal_patch_size: frames, patch_size: p } = cfg
    this.proj = new WeightOnly(hidden_size, in_channels, frames, p, p)
  }

  /** Kernel and stride are equal: the convolution is a linear layer over the flat patch. */
  forward(patches: Tensor): Tensor {
    return patches.linear(this.proj.weight.flatten({ startDim: 1 }))
  }
}

class Merger extends Module {
  readonly ln_q: RMSNorm
  readonly mlp: (Linear | null)[]
  readonly #wide: number

  constructor(cfg: QwenVisionConfig) {
    super()
    this.#wide = cfg.hidden_size * cfg.spatial_merge_size ** 2
    this.ln_q = new RMSNorm(cfg.hidden_size, eps)
    this.mlp = [new Linear(this.#wide, this.#wide), null, new Linear(this.#wide, cfg.out_hidden_size)]
  }

  /** [P, h] -> [U, out] */
  forward(x: Tensor): Tensor {
    const [first, , second] = this.mlp as [Linear, null, Linear]
    return second.forward(first.forward(this.ln_q.forward(x).view([-1, this.#wide])).gelu())
  }
}

export class QwenVision extends Module {
  readonly patch_embed: PatchEmbed
  readonly blocks: Block[]
  readonly merger: Merger
  readonly #cfg: QwenVisionConfig
  readonly #rope: Rope

  constructor(cfg: QwenVisionConfig) {
    super()
    this.patch_embed = new PatchEmbed(cfg)
    this.blocks = Array.from({ length: cfg.depth }, () => new Block(cfg))
    this.merger = new Merger(cfg)
    this.#cfg = cfg
    this.#rope = new Rope(cfg.hidden_size / cfg.num_heads / 2, 10000) // half a head for rows, half for columns
  }

  /** Patches of one image [P, 3 * frames * p * p] -> its tokens [U, out], row by row. */
  forward(patches: Tensor, grid: Grid, watch?: Watch): VisionOutput {
    return tidy(() => {
      const area = this.#cfg.spatial_merge_size ** 2
      const { order, lengths } = windowOrder(grid, this.#cfg)
      const rows = order.flatMap((unit) => Array.from({ length: area }, (_, i) => unit * area + i))
      const places = patchOrder(grid, this.#cfg.spatial_merge_size)
      const rope = patchRotation(
        this.#rope,
        rows.map((r) => places[r]!),
        patches.device,
      )
      const inWindows = segmentsOf(lengths.map((n) => n * area))
      const everywhere = segmentsOf([rows.length])
      let x = this.patch_embed.forward(patches).indexSelect(0, indices(Int32Array.from(rows), patches.device))
      this.blocks.forEach((block, i) => {
        x = block.forward(x, rope, this.#cfg.fullatt_block_indexes.includes(i) ? everywhere : inWindows)
        watch?.(`block${i}`, x) // in window order
      })
      const back = new Int32Array(order.length)
      order.forEach((unit, i) => {
        back[unit] = i
      })
      return { tokens: this.merger.forward(x).indexSelect(0, indices(back, x.device)), deepstack: [] }
    })
  }
}

/** Tables of patches at the given rows and columns, [P, 1, D], float32: half the frequencies follow the row, half the column. */
export function patchRotation(rope: Rope, places: readonly (readonly [number, number])[], device: string): RopeTable {
  return noGrad(() =>
    tidy(() => {
      const along = (axis: 0 | 1) =>
        rope.angles(
          indices(
            Int32Array.from(places, (place) => place[axis]),
            device,
          ),
        )
      const angles = cat([along(0), along(1)], { dim: -1 }) // [P, D/2]
      const { cos, sin } = tableOf(angles, angles)
      return { cos: cos.unsqueeze(1), sin: sin.unsqueeze(1) }
    }),
  )
}

/** Units window by window, and how many each window has; windows at the lower and right edge are smaller. */
export function windowOrder(grid: Grid, cfg: QwenVisionConfig): { order: number[]; lengths: number[] } {
  const [rows, columns] = [grid.rows, grid.columns].map((n) => n / cfg.spatial_merge_size) as [number, number]
  const side = Math.floor(cfg.window_size / cfg.spatial_merge_size / cfg.patch_size)
  const order: number[] = []
  const lengths: number[] = []
  for (let top = 0; top < rows; top += side)
    for (let left = 0; left < columns; left += side) {
      const before = order.length
      for (let y = top; y < Math.min(top + side, rows); y++)
        for (let x = left; x < Math.min(left + side, columns); x++) order.push(y * columns + x)
      lengths.push(order.length - before)
    }
  return { order, lengths }
}

/** Consecutive runs of the given lengths, equal lengths together. */
export function segmentsOf(lengths: readonly number[]): Segments {
  const rows = new Map<number, number[]>()
  let at = 0
  for (const length of lengths) {
    const list = rows.get(length) ?? []
    rows.set(length, list)
    for (let i = 0; i < length; i++) list.push(at++)
  }
  return [...rows].map(([length, list]) => ({ length, rows: Int32Array.from(list) }))
}
