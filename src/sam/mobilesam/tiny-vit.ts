// TinyViT-5M, MobileSAM's image encoder: convolutions (batch norms folded in), then windowed attention with a bias per distance.
// Unusual: padding takes part in attention, because the norm is applied after it. B images, C channels, H x W cells, s window side.
import { Conv2d, LayerNorm, LayerNorm2d, Linear, Module, weight } from '../../nn/index.ts'
import { keep, type Tensor, tensor, tidy } from '../../tensor/index.ts'
import type { SamConfig } from './config.ts'

/** A convolution under the name `c`, as the checkpoint has it. */
class ConvBN extends Module {
  readonly c: Conv2d

  constructor(from: number, to: number, kernel: number, options: { stride?: number; groups?: number } = {}) {
    super()
    this.c = new Conv2d(from, to, kernel, { ...options, padding: (kernel - 1) / 2 })
  }

  forward(x: Tensor): Tensor {
    return this.c.forward(x)
  }
}

class PatchEmbed extends Module {
  readonly seq: [ConvBN, null, ConvBN]

  constructor(width: number) {
    super()
    this.seq = [new ConvBN(3, width / 2, 3, { stride: 2 }), null, new ConvBN(width / 2, width, 3, { stride: 2 })]
  }

  forward(pixels: Tensor): Tensor {
    return this.seq[2].forward(this.seq[0].forward(pixels).gelu())
  }
}

/** 1 x 1, depthwise 3 x 3, 1 x 1; with a residual inside a stage, with other widths and strides between stages. */
class ConvBlock extends Module {
  readonly conv1: ConvBN
  readonly conv2: ConvBN
  readonly conv3: ConvBN
  readonly #residual: boolean

  constructor(from: number, hidden: number, to: number, options: { stride: number; residual: boolean }) {
    super()
    this.conv1 = new ConvBN(from, hidden, 1)
    this.conv2 = new ConvBN(hidden, hidden, 3, { stride: options.stride, groups: hidden })
    this.conv3 = new ConvBN(hidden, to, 1)
    this.#residual = options.residual
  }

  forward(x: Tensor): Tensor {
    return tidy(() => {
      const y = this.conv3.forward(this.conv2.forward(this.conv1.forward(x).gelu()).gelu())
      return this.#residual ? y.add(x).gelu() : y
    })
  }
}

class WindowAttention extends Module {
  readonly norm: LayerNorm
  readonly qkv: Linear
  readonly proj: Linear
  attention_biases: Tensor // [heads, s * s], by distance in y and x
  readonly #heads: number
  readonly #side: number

  constructor(dim: number, heads: number, side: number) {
    super()
    this.norm = new LayerNorm(dim, 1e-5)
    this.qkv = new Linear(dim, 3 * dim)
    this.proj = new Linear(dim, dim)
    this.attention_biases = weight(heads, side * side)
    this.#heads = heads
    this.#side = side
  }

  /** Windows [w, N, C]. The channels of q, k and v lie together for each head. */
  forward(windows: Tensor): Tensor {
    const [count, cells, dim] = windows.shape as [number, number, number]
    const split = this.qkv.forward(this.norm.forward(windows)).view([count, cells, this.#heads, -1])
    const width = dim / this.#heads
    const part = (i: number) => split.narrow(3, i * width, width).transpose(1, 2)
    const products = part(0).matmul(part(1).transpose(-2, -1))
    const scores = products.mul(width ** -0.5).add(this.#biases())
    const out = scores.softmax(-1).matmul(part(2)).transpose(1, 2).reshape([count, cells, dim])
    return this.proj.forward(out)
  }

  /** [heads, N, N]. */
  #biases(): Tensor {
    const cells = this.#side ** 2
    const { device } = this.attention_biases
    return this.attention_biases.indexSelect(1, distancesOn(device, this.#side)).view([this.#heads, cells, cells])
  }
}

/** Of every pair of cells of a window, which bias it has: built once for a device, it takes longer than the attention. */
const distances = new Map<string, Tensor>()

function distancesOn(device: string, side: number): Tensor {
  const key = `${device} ${side}`
  const known = distances.get(key)
  if (known?.alive) return known
  const cells = side * side
  const index = Int32Array.from({ length: cells * cells }, (_, pair) => {
    const [i, j] = [Math.floor(pair / cells), pair % cells]
    const dy = Math.abs(Math.floor(i / side) - Math.floor(j / side))
    return dy * side + Math.abs((i % side) - (j % side))
  })
  const table = keep(tensor(index, { device }))
  distances.set(key, table)
  return table
}

class FeedForward extends Module {
  readonly norm: LayerNorm
  readonly fc1: Linear
  readonly fc2: Linear

  constructor(dim: number) {
    super()
    this.norm = new LayerNorm(dim, 1e-5)
    this.fc1 = new Linear(dim, 4 * dim)
    this.fc2 = new Linear(4 * dim, dim)
  }

  forward(x: Tensor): Tensor {
    return this.fc2.forward(this.fc1.forward(this.norm.forward(x)).gelu())
  }
}

class AttentionBlock extends Module {
  readonly attn: WindowAttention
  readonly local_conv: ConvBN
  readonly mlp: FeedForward
  readonly #side: number

  constructor(dim: number, heads: number, side: number) {
    super()
    this.attn = new WindowAttention(dim, heads, side)
    this.local_conv = new ConvBN(dim, dim, 3, { groups: dim })
    this.mlp = new FeedForward(dim)
    this.#side = side
  }

  /** Maps [B, C, H, W]. */
  forward(x: Tensor): Tensor {
    return tidy(() => {
      const y = this.local_conv.forward(x.add(this.#attend(x)))
      return y.add(this.mlp.forward(y.permute([0, 2, 3, 1])).permute([0, 3, 1, 2]))
    })
  }

  #attend(x: Tensor): Tensor {
    const [B, C, H, W] = x.shape as [number, number, number, number]
    const s = this.#side
    const [rows, columns] = [Math.ceil(H / s), Math.ceil(W / s)]
    const padded = x.permute([0, 2, 3, 1]).constantPadNd([0, 0, 0, columns * s - W, 0, rows * s - H])
    const cells = padded.reshape([B, rows, s, columns, s, C]).transpose(2, 3)
    const windows = cells.reshape([-1, s * s, C])
    const map = this.attn.forward(windows).view([B, rows, columns, s, s, C]).transpose(2, 3)
    const whole = map.reshape([B, rows * s, columns * s, C])
    return whole.narrow(1, 0, H).narrow(2, 0, W).permute([0, 3, 1, 2])
  }
}

class Stage extends Module {
  readonly blocks: (ConvBlock | AttentionBlock)[]
  readonly downsample?: ConvBlock

  constructor(blocks: (ConvBlock | AttentionBlock)[], downsample?: ConvBlock) {
    super()
    this.blocks = blocks
    if (downsample) this.downsample = downsample
  }

  forward(x: Tensor): Tensor {
    const out = this.blocks.reduce((map, block) => block.forward(map), x)
    return this.downsample ? this.downsample.forward(out) : out
  }
}

const attentionBlocks = (count: number, dim: number, heads: number, side: number) =>
  Array.from({ length: count }, () => new AttentionBlock(dim, heads, side))

const down = (from: number, to: number, stride: number) => new ConvBlock(from, to, to, { stride, residual: false })

export class TinyViT extends Module {
  readonly patch_embed: PatchEmbed
  readonly layers: [Stage, Stage, Stage, Stage]
  readonly neck: [Conv2d, LayerNorm2d, Conv2d, LayerNorm2d]

  constructor({ embed_dims, depths, num_heads, window_sizes, d_model }: SamConfig) {
    super()
    const [c0, c1, c2, c3] = embed_dims as [number, number, number, number]
    this.patch_embed = new PatchEmbed(c0)
    const mbConv = () => new ConvBlock(c0, 4 * c0, c0, { stride: 1, residual: true })
    const blocks = (i: number) => attentionBlocks(depths[i]!, embed_dims[i]!, num_heads[i]!, window_sizes[i]!)
    this.layers = [
      new Stage(Array.from({ length: depths[0]! }, mbConv), down(c0, c1, 2)),
      new Stage(blocks(1), down(c1, c2, 2)),
      new Stage(blocks(2), down(c2, c3, 1)),
      new Stage(blocks(3)),
    ]
    this.neck = [
      new Conv2d(c3, d_model, 1, { bias: false }),
      new LayerNorm2d(d_model),
      new Conv2d(d_model, d_model, 3, { padding: 1, bias: false }),
      new LayerNorm2d(d_model),
    ]
  }

  /** Normalised pixels [B, 3, 1024, 1024] to [B, 256, 64, 64] (with the released sizes). */
  forward(pixels: Tensor): Tensor {
    return tidy(() => {
      const map = this.layers.reduce((x, stage) => stage.forward(x), this.patch_embed.forward(pixels))
      return this.neck.reduce((x, layer) => layer.forward(x), map)
    })
  }
}
