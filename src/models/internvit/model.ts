// InternViT. T tiles, N patches + 1, h width. Unusual: layer scale after both branches; the 6B variant uses RMSNorm and
// normalises q and k over the full width before the heads are split; there is no final norm.
import { Mismatch } from '../../core/index.ts'
import { afterLayer, normedSum, type Residual, sumOf } from '../../kernels/index.ts'
import { oneOf, positiveNumber, switchAt } from '../../llm/index.ts'
import { Conv2d, cast, LayerNorm, Linear, Module, RMSNorm, weight } from '../../nn/index.ts'
import { attention, cat, type Tensor, tidy } from '../../tensor/index.ts'

export interface VisionConfig {
  hidden_size: number
  num_attention_heads: number
  intermediate_size: number
  num_hidden_layers: number
  image_size: number
  patch_size: number
  qkv_bias: boolean
  qk_normalization: boolean
  norm_type: 'layer_norm' | 'rms_norm'
  layer_norm_eps: number
}

const widths = ['hidden_size', 'num_attention_heads', 'intermediate_size']
const sizes = [...widths, 'num_hidden_layers', 'image_size', 'patch_size']

export function readVisionConfig(raw: Record<string, unknown>, where: string): VisionConfig {
  const check = (isRight: boolean, key: string, expected: string, got: unknown) => {
    if (!isRight) throw new Mismatch({ where, field: `vision_config.${key}`, expected, got: got ?? 'nothing' })
  }
  const list = raw.architectures as string[] | undefined
  check(list?.[0] === 'InternVisionModel', 'architectures', '["InternVisionModel"]', list)
  for (const key of sizes) {
    const most = key === 'num_hidden_layers' ? 1024 : 65_536 // more is a damaged file
    const value = raw[key] as number
    check(Number.isInteger(value) && value >= 1 && value <= most, key, `a whole number from 1 to ${most}`, value)
  }
  check([undefined, 'gelu'].includes(raw.hidden_act as undefined), 'hidden_act', 'gelu', raw.hidden_act)
  const site = { where, part: 'vision_config.' }
  const cfg = {
    ...raw,
    qkv_bias: switchAt(raw, 'qkv_bias', false, site),
    qk_normalization: switchAt(raw, 'qk_normalization', true, site),
    norm_type: oneOf(raw, 'norm_type', ['layer_norm', 'rms_norm'], 'rms_norm', site),
    layer_norm_eps: positiveNumber(raw, 'layer_norm_eps', 1e-6, site),
  } as unknown as VisionConfig
  const { hidden_size: width, num_attention_heads: heads } = cfg
  check(width % heads === 0, 'num_attention_heads', `a divisor of ${width}`, heads)
  return cfg
}

function norm(cfg: VisionConfig): LayerNorm | RMSNorm {
  return cfg.norm_type === 'rms_norm'
    ? new RMSNorm(cfg.hidden_size, cfg.layer_norm_eps)
    : new LayerNorm(cfg.hidden_size, cfg.layer_norm_eps)
}

class Attention extends Module {
  readonly qkv: Linear // [3h, h]
  readonly proj: Linear
  readonly q_norm?: RMSNorm
  readonly k_norm?: RMSNorm
  readonly #heads: number

  constructor(cfg: VisionConfig) {
    super()
    this.qkv = new Linear(cfg.hidden_size, 3 * cfg.hidden_size, { bias: cfg.qkv_bias })
    this.proj = new Linear(cfg.hidden_size, cfg.hidden_size)
    if (cfg.qk_normalization) {
      this.q_norm = new RMSNorm(cfg.hidden_size, cfg.layer_norm_eps)
      this.k_norm = new RMSNorm(cfg.hidden_size, cfg.layer_norm_eps)
    }
    this.#heads = cfg.num_attention_heads
  }

  forward(x: Tensor): Tensor {
    const [T, N, h] = x.shape as [number, number, number]
    let [q, k, v] = this.qkv.forward(x).chunk(3, { dim: -1 }) as [Tensor, Tensor, Tensor]
    if (this.q_norm && this.k_norm) {
      q = this.q_norm.forward(q)
      k = this.k_norm.forward(k)
    }
    const split = (t: Tensor) => t.reshape([T, N, this.#heads, h / this.#heads]).transpose(1, 2)
    return this.proj.forward(attention(split(q), split(k), split(v)).transpose(1, 2).reshape([T, N, h]))
  }
}

class Mlp extends Module {
  readonly fc1: Linear
  readonly fc2: Linear

  constructor(cfg: VisionConfig) {
    super()
    this.fc1 = new Linear(cfg.hidden_size, cfg.intermediate_size)
    this.fc2 = new Linear(cfg.intermediate_size, cfg.hidden_size)
  }

  forward(x: Tensor): Tensor {
    return this.fc2.forward(this.fc1.forward(x).gelu())
  }
}

class Layer extends Module {
  readonly attn: Attention
  readonly mlp: Mlp
  readonly norm1: LayerNorm | RMSNorm
  readonly norm2: LayerNorm | RMSNorm
  ls1: Tensor // [h]
  ls2: Tensor

  constructor(cfg: VisionConfig) {
    super()
    this.attn = new Attention(cfg)
    this.mlp = new Mlp(cfg)
    this.norm1 = norm(cfg)
    this.norm2 = norm(cfg)
    this.ls1 = weight(cfg.hidden_size)
    this.ls2 = weight(cfg.hidden_size)
  }

  /** Each norm adds the branch before it: the second branch is left to the next layer. */
  forward(at: Residual): Residual {
    return tidy(() => {
      const { sum: x, normed } = normedSum(at, this.norm1)
      const second = normedSum({ x, y: this.attn.forward(normed), scale: cast(this.ls1, x) }, this.norm2)
      return { x: second.sum, y: this.mlp.forward(second.normed), scale: cast(this.ls2, x) }
    })
  }
}

class Embeddings extends Module {
  class_embedding: Tensor // [1, 1, h]
  readonly patch_embedding: Conv2d
  position_embedding: Tensor // [1, N, h]
  readonly #grid: number

  constructor(cfg: VisionConfig) {
    super()
    const grid = Math.floor(cfg.image_size / cfg.patch_size)
    this.class_embedding = weight(1, 1, cfg.hidden_size)
    this.patch_embedding = new Conv2d(3, cfg.hidden_size, cfg.patch_size, { stride: cfg.patch_size })
    this.position_embedding = weight(1, grid * grid + 1, cfg.hidden_size)
    this.#grid = grid
  }

  forward(pixels: Tensor): Tensor {
    const patches = this.patch_embedding.forward(pixels) // [T, h, H, W]
    const [T, , H, W] = patches.shape as [number, number, number, number]
    const first = cast(this.class_embedding, patches).expand([T, 1, -1])
    const tokens = cat([first, patches.flatten({ startDim: 2 }).transpose(1, 2)], { dim: 1 })
    return tokens.add(this.#positions(H, W, patches))
  }

  /** Stored for one grid; another size is interpolated in float32. */
  #positions(H: number, W: number, like: Tensor): Tensor {
    if (H === this.#grid && W === this.#grid) return cast(this.position_embedding, like)
    const first = this.position_embedding.slice({ dim: 1, end: 1 })
    const cells = this.position_embedding.slice({ dim: 1, start: 1 }).to('float32')
    const grid = cells.reshape([1, this.#grid, this.#grid, -1]).permute([0, 3, 1, 2])
    const scaled = grid
      .upsampleBicubic2d([H, W], false)
      .reshape([1, -1, H * W])
      .permute([0, 2, 1])
    return cat([cast(first, like), cast(scaled, like)], { dim: 1 })
  }
}

class Encoder extends Module {
  readonly layers: Layer[]

  constructor(cfg: VisionConfig) {
    super()
    this.layers = Array.from({ length: cfg.num_hidden_layers }, () => new Layer(cfg))
  }
}

export class InternVisionModel extends Module {
  readonly embeddings: Embeddings
  readonly encoder: Encoder

  constructor(cfg: VisionConfig) {
    super()
    this.embeddings = new Embeddings(cfg)
    this.encoder = new Encoder(cfg)
  }

  /** [T, 3, H, W] -> hidden state [T, N, h]; selectLayer counts as hidden_states of the reference: -1 last, -2 input of the last layer. */
  forward(pixels: Tensor, selectLayer = -1): Tensor {
    return tidy(() => {
      let at: Residual = { x: this.embeddings.forward(pixels) }
      const { layers } = this.encoder
      const last = selectLayer < 0 ? layers.length + 1 + selectLayer : selectLayer
      for (const layer of layers.slice(0, last)) at = afterLayer(at, layer)
      return sumOf(at)
    })
  }
}
