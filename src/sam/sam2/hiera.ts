// Hiera, SAM2's image trunk: blocks of attention inside windows, a few of them global, queries pooled 2x2 where a stage begins.
// Unusual: the first block of a stage keeps the window of the stage before it, and its shortcut comes from the normed input.
// B batch, H W rows and columns of the map, C channels, N windows of w x w cells, h heads, D head width.
import { afterLayer, normedSum, partition, type Residual, sumOf } from '../../kernels/index.ts'
import { Conv2d, cast, LayerNorm, Linear, Module, weight } from '../../nn/index.ts'
import { attention, cat, type Tensor, tidy } from '../../tensor/index.ts'
import type { Sam2Config } from './config.ts'
import { Mlp } from './mlp.ts'
import { type Autocast, autocastOf, wide } from './precision.ts'

/** Scores of one call stay below this on the CPU, where they may be in memory twice; global blocks at 1024 have 512 MiB of them. */
const scoreBytes = 2 ** 28

/** attention() over runs of heads, each with at most `limit` bytes of scores: q, k, v are [B, h, T, D]. */
export function attentionByHeads(q: Tensor, k: Tensor, v: Tensor, limit = scoreBytes): Tensor {
  const [batch, heads, queries] = q.shape as [number, number, number]
  const perHead = queries * k.size(2) * 4
  const run = Math.max(1, Math.floor(limit / perHead))
  if (!q.device.startsWith('cpu') || run >= batch * heads) return attention(q, k, v)
  const flat = [q, k, v].map((t) => t.reshape([1, batch * heads, t.size(2), t.size(3)]))
  const parts: Tensor[] = []
  for (let at = 0; at < batch * heads; at += run) {
    const length = Math.min(run, batch * heads - at)
    const [a, b, c] = flat.map((t) => t.narrow(1, at, length)) as [Tensor, Tensor, Tensor]
    parts.push(tidy(() => attention(a, b, c)))
  }
  return cat(parts, { dim: 1 }).view([batch, heads, queries, v.size(3)])
}

/** Largest value of each 2x2 cell group, [B, H, W, C] to [B, H/2, W/2, C]. */
function pool(x: Tensor): Tensor {
  return x.permute([0, 3, 1, 2]).maxPool2d(2, { stride: 2 }).permute([0, 2, 3, 1])
}

class MultiScaleAttention extends Module {
  readonly qkv: Linear // [3 dout, din]
  readonly proj: Linear // [dout, dout]
  readonly #heads: number
  readonly #pooled: boolean

  constructor(din: number, dout: number, heads: number, pooled: boolean) {
    super()
    this.qkv = new Linear(din, 3 * dout)
    this.proj = new Linear(dout, dout)
    this.#heads = heads
    this.#pooled = pooled
  }

  /** [N, H, W, din] to [N, H, W, dout], or half the rows and columns where queries are pooled. */
  forward(x: Tensor): Tensor {
    const [n, rows, columns] = x.shape as [number, number, number]
    const all = this.qkv.forward(x).reshape([n, rows * columns, 3, -1]) // [N, HW, 3, dout]
    const [q, k, v] = all.unbind({ dim: 2 }) as [Tensor, Tensor, Tensor]
    const queries = this.#pooled ? pool(q.reshape([n, rows, columns, -1])) : q
    const [h, w] = this.#pooled ? [rows / 2, columns / 2] : [rows, columns]
    const out = attentionByHeads(this.#split(queries), this.#split(k), this.#split(v)) // [N, h, HW, D]
    return this.proj.forward(out.transpose(1, 2).reshape([n, h, w, -1]))
  }

  /** [N, .., dout] to [N, h, HW, D]. */
  #split(t: Tensor): Tensor {
    const width = t.size(-1) / this.#heads
    return t.reshape([t.size(0), -1, this.#heads, width]).transpose(1, 2)
  }
}

export interface BlockShape {
  din: number
  dout: number
  heads: number
  /** Cells per side of a window; 0 attends over the whole map. */
  window: number
  /** Whether queries and the shortcut are pooled 2x2. */
  pooled: boolean
}

export class HieraBlock extends Module {
  readonly norm1: LayerNorm
  readonly attn: MultiScaleAttention
  readonly norm2: LayerNorm
  readonly mlp: Mlp
  readonly proj?: Linear
  readonly #shape: BlockShape
  readonly #autocast: Autocast

  constructor(shape: BlockShape, autocast: Autocast = autocastOf({})) {
    super()
    this.#autocast = autocast
    const { din, dout, heads, pooled } = shape
    this.norm1 = new LayerNorm(din, 1e-6)
    this.attn = new MultiScaleAttention(din, dout, heads, pooled)
    this.norm2 = new LayerNorm(dout, 1e-6)
    this.mlp = new Mlp([dout, 4 * dout, dout], 'gelu')
    if (din !== dout) this.proj = new Linear(din, dout)
    this.#shape = shape
  }

  /** [B, H, W, din] to [B, H', W', dout]. Each norm adds the branch before it: the second branch is left to the next block. */
  forward(at: Residual): Residual {
    return tidy(() => {
      const { narrow } = this.#autocast
      const { window, pooled } = this.#shape
      const to = this.proj ? 0 : window // a projected shortcut needs the norm as a map
      const first = normedSum(at, this.norm1, { to })
      const normed = narrow(first.normed)
      const x = this.#shortcut(first.sum, normed)
      const y = tidy(() => this.attn.forward(to === window ? normed : partition(normed, window)))
      const { sum, normed: inner } = normedSum({ x, y }, this.norm2, { from: pooled ? window / 2 : window })
      return { x: sum, y: this.mlp.forward(narrow(inner)) }
    })
  }

  #shortcut(x: Tensor, normed: Tensor): Tensor {
    if (!this.proj) return x
    const projected = this.proj.forward(normed)
    return this.#shape.pooled ? pool(projected) : projected
  }
}

class PatchEmbed extends Module {
  readonly proj: Conv2d

  constructor(channels: number) {
    super()
    this.proj = new Conv2d(3, channels, 7, { stride: 4, padding: 3 })
  }
}

/** Shape of every block, in order. */
export function blockShapes(cfg: Sam2Config): BlockShape[] {
  const out: BlockShape[] = []
  cfg.stages.forEach((depth, stage) => {
    for (let i = 0; i < depth; i++) {
      const pooled = stage > 0 && i === 0
      const from = pooled ? stage - 1 : stage // the stage the block's input comes from
      const window = cfg.global_att_blocks.includes(out.length) ? 0 : cfg.window_spec[from]!
      const width = (s: number) => cfg.embed_dim * 2 ** s
      out.push({ din: width(from), dout: width(stage), heads: cfg.num_heads * 2 ** stage, window, pooled })
    }
  })
  return out
}

export class Hiera extends Module {
  readonly patch_embed: PatchEmbed
  pos_embed: Tensor // [1, C, bh, bw]: coarse, over the whole map
  pos_embed_window: Tensor // [1, C, w, w]: repeated in every window
  readonly blocks: HieraBlock[]
  readonly #ends: readonly number[]
  readonly #autocast: Autocast

  constructor(cfg: Sam2Config) {
    super()
    const [bh, bw] = cfg.window_pos_embed_bkg_spatial_size as [number, number]
    const w = cfg.window_spec[0]!
    this.patch_embed = new PatchEmbed(cfg.embed_dim)
    this.pos_embed = weight(1, cfg.embed_dim, bh, bw)
    this.pos_embed_window = weight(1, cfg.embed_dim, w, w)
    this.#autocast = autocastOf(cfg)
    this.blocks = blockShapes(cfg).map((shape) => new HieraBlock(shape, this.#autocast))
    this.#ends = cfg.stages.map((_, s) => cfg.stages.slice(0, s + 1).reduce((a, b) => a + b, 0) - 1)
  }

  /** Pixels [B, 3, S, S] to the four stages' maps [B, C, H, W], finest first. */
  forward(pixels: Tensor): Tensor[] {
    return tidy(() => {
      const patches = this.patch_embed.proj.forward(pixels) // [B, C, S/4, S/4]
      let at: Residual = { x: patches.add(this.#positions(patches)).permute([0, 2, 3, 1]).contiguous() } // [B, H, W, C]
      const outs: Tensor[] = []
      this.blocks.forEach((block, i) => {
        at = afterLayer(at, block)
        if (!this.#ends.includes(i)) return
        at = { x: sumOf(at) }
        outs.push(at.x.permute([0, 3, 1, 2]))
      })
      return outs
    })
  }

  /** In float32 also for bfloat16 weights: the sum is rounded once. The reference keeps it, and the first stage with it, in float32. */
  #positions(like: Tensor): Tensor {
    const [rows, columns] = [like.size(2), like.size(3)]
    const coarse = wide(this.pos_embed).upsampleBicubic2d([rows, columns], false)
    const fine = wide(this.pos_embed_window)
    const tiled = fine.repeat([1, 1, rows / fine.size(2), columns / fine.size(3)])
    const sum = coarse.add(tiled) // [1, C, H, W]
    return this.#autocast.isReference ? sum : cast(sum, like)
  }
}
