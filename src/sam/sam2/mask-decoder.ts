// Tokens of the prompt and the image embedding look at each other twice; each mask token then becomes a 1x1 filter over the
// enlarged image embedding. Unusual: the first layer's self-attention has neither residual nor positions.
// B prompts, F images (one for all prompts, one for each, or one for some of them), n tokens, P cells of the image embedding,
// D = d_model, M masks.
import { Conv2d, ConvTranspose2d, cast, LayerNorm, LayerNorm2d, Linear, Module, WeightOnly } from '../../nn/index.ts'
import { attention, cat, stack, type Tensor, tidy } from '../../tensor/index.ts'
import type { Sam2Config } from './config.ts'
import { Mlp } from './mlp.ts'
import { type Autocast, autocastOf, wide, wideOnCpu } from './precision.ts'

/** What belongs to images [F, ..], for each prompt [B, ..]; `imageOf` [B] maps prompts to images if there are several. */
function rows(t: Tensor, batch: number, imageOf: Tensor | null): Tensor {
  if (t.size(0) === batch) return t
  return t.size(0) === 1 ? t.expand([batch, ...t.shape.slice(1)]) : t.indexSelect(0, imageOf!)
}

class TokenAttention extends Module {
  readonly q_proj: Linear
  readonly k_proj: Linear
  readonly v_proj: Linear
  readonly out_proj: Linear
  readonly #heads: number
  readonly #autocast: Autocast

  constructor(dim: number, width: number, cfg: Sam2Config) {
    super()
    this.#autocast = autocastOf(cfg)
    this.q_proj = new Linear(dim, width)
    this.k_proj = new Linear(dim, width)
    this.v_proj = new Linear(dim, width)
    this.out_proj = new Linear(width, dim)
    this.#heads = cfg.decoder_heads
  }

  /** q [B or F, Tq, D], k and v [B or F, Tk, D]; an image is projected once for all its prompts. */
  forward(q: Tensor, k: Tensor, v: Tensor, imageOf: Tensor | null = null): Tensor {
    const batch = Math.max(q.size(0), k.size(0))
    const { narrow } = this.#autocast
    const projected = [this.q_proj.forward(narrow(q)), this.k_proj.forward(narrow(k)), this.v_proj.forward(narrow(v))]
    const [a, b, c] = projected.map((t) => this.#split(rows(t, batch, imageOf))) as [Tensor, Tensor, Tensor]
    const out = attention(a, b, c).transpose(1, 2) // [B, Tq, heads, width / heads]
    return this.out_proj.forward(out.reshape([batch, out.size(1), -1]))
  }

  #split(t: Tensor): Tensor {
    return t.reshape([t.size(0), t.size(1), this.#heads, -1]).transpose(1, 2)
  }
}

interface Sides {
  tokens: Tensor // [B, n, D]
  image: Tensor // [F or B, P, D]
}

/** Positions of both sides, and which image each prompt is about: [B], if there are several images. */
interface Positions extends Sides {
  imageOf: Tensor | null
}

class TwoWayBlock extends Module {
  readonly self_attn: TokenAttention
  readonly norm1: LayerNorm
  readonly cross_attn_token_to_image: TokenAttention
  readonly norm2: LayerNorm
  readonly mlp: Mlp
  readonly norm3: LayerNorm
  readonly norm4: LayerNorm
  readonly cross_attn_image_to_token: TokenAttention
  readonly #first: boolean
  readonly #autocast: Autocast

  constructor(cfg: Sam2Config, first: boolean) {
    super()
    const { d_model: dim } = cfg
    this.#autocast = autocastOf(cfg)
    this.self_attn = new TokenAttention(dim, dim, cfg)
    this.norm1 = new LayerNorm(dim, 1e-5)
    this.cross_attn_token_to_image = new TokenAttention(dim, dim / 2, cfg)
    this.norm2 = new LayerNorm(dim, 1e-5)
    this.mlp = new Mlp([dim, cfg.decoder_mlp_dim, dim], 'relu')
    this.norm3 = new LayerNorm(dim, 1e-5)
    this.norm4 = new LayerNorm(dim, 1e-5)
    this.cross_attn_image_to_token = new TokenAttention(dim, dim / 2, cfg)
    this.#first = first
  }

  /** `at`: the positions of both sides, added to queries and keys but never to values. */
  forward({ tokens, image }: Sides, at: Positions): Sides {
    return tidy(() => {
      const { narrow, widen } = this.#autocast
      const q = this.norm1.forward(widen(this.#selfAttend(tokens, at.tokens)))
      const seen = this.cross_attn_token_to_image.forward(q.add(at.tokens), image.add(at.image), image, at.imageOf)
      const q2 = this.norm2.forward(q.add(seen))
      const q3 = this.norm3.forward(q2.add(this.mlp.forward(narrow(q2))))
      const attended = this.cross_attn_image_to_token.forward(image.add(at.image), q3.add(at.tokens), q3, at.imageOf)
      const own = rows(image, attended.size(0), at.imageOf)
      return { tokens: q3, image: this.norm4.forward(widen(own.add(attended))) }
    })
  }

  #selfAttend(tokens: Tensor, at: Tensor): Tensor {
    if (this.#first) return this.self_attn.forward(tokens, tokens, tokens)
    const placed = tokens.add(at)
    return tokens.add(this.self_attn.forward(placed, placed, tokens))
  }
}

export class TwoWayTransformer extends Module {
  readonly layers: TwoWayBlock[]
  readonly final_attn_token_to_image: TokenAttention
  readonly norm_final_attn: LayerNorm

  constructor(cfg: Sam2Config) {
    super()
    this.layers = Array.from({ length: cfg.decoder_depth }, (_, i) => new TwoWayBlock(cfg, i === 0))
    this.final_attn_token_to_image = new TokenAttention(cfg.d_model, cfg.d_model / 2, cfg)
    this.norm_final_attn = new LayerNorm(cfg.d_model, 1e-5)
  }

  forward(start: Sides, at: Positions): Sides {
    const { tokens, image } = this.layers.reduce((sides, layer) => layer.forward(sides, at), start)
    const seen = this.final_attn_token_to_image.forward(tokens.add(at.tokens), image.add(at.image), image, at.imageOf)
    return { tokens: this.norm_final_attn.forward(tokens.add(seen)), image }
  }
}

export interface DecoderInput {
  /** Image embedding [F, D, e, e]. */
  image: Tensor
  /** Levels 0 and 1 of the neck, before conv_s0 and conv_s1: [F, D, 4e, 4e], [F, D, 2e, 2e]. */
  level0: Tensor
  level1: Tensor
  /** Positions of the cells [1, D, e, e]. */
  positions: Tensor
  sparse: Tensor // [B, n, D]
  dense: Tensor // [B or 1, D, e or 1, e or 1]
  /** [B] the image of each prompt; null if there is one image, or one for each. */
  imageOf: Tensor | null
}

/** All masks, the single one first: logits [B, 1 + M, 4e, 4e], predicted overlaps [B, 1 + M], object score [B, 1]; float32. */
export interface DecoderOutput {
  masks: Tensor
  ious: Tensor
  objScore: Tensor
  /** Single mask with its fallback only: which of all masks each row is, [B] int64. */
  tokens?: Tensor
}

export class MaskDecoder extends Module {
  readonly transformer: TwoWayTransformer
  readonly iou_token: WeightOnly
  readonly mask_tokens: WeightOnly
  readonly obj_score_token: WeightOnly
  readonly output_upscaling: [ConvTranspose2d, LayerNorm2d, null, ConvTranspose2d]
  readonly conv_s0: Conv2d
  readonly conv_s1: Conv2d
  readonly output_hypernetworks_mlps: Mlp[]
  readonly iou_prediction_head: Mlp
  readonly pred_obj_score_head: Mlp
  readonly #autocast: Autocast

  constructor(cfg: Sam2Config) {
    super()
    this.#autocast = autocastOf(cfg)
    const dim = cfg.d_model
    const masks = cfg.num_multimask_outputs + 1
    this.transformer = new TwoWayTransformer(cfg)
    this.iou_token = new WeightOnly(1, dim)
    this.mask_tokens = new WeightOnly(masks, dim)
    this.obj_score_token = new WeightOnly(1, dim)
    const enlarge = (from: number, to: number) => new ConvTranspose2d(from, to, 2, { stride: 2 })
    this.output_upscaling = [enlarge(dim, dim / 4), new LayerNorm2d(dim / 4), null, enlarge(dim / 4, dim / 8)]
    this.conv_s0 = new Conv2d(dim, dim / 8, 1)
    this.conv_s1 = new Conv2d(dim, dim / 4, 1)
    this.output_hypernetworks_mlps = Array.from({ length: masks }, () => new Mlp([dim, dim, dim, dim / 8], 'relu'))
    const hidden = Array.from({ length: cfg.iou_head_depth - 1 }, () => cfg.iou_head_hidden_dim)
    this.iou_prediction_head = new Mlp([dim, ...hidden, masks], 'relu')
    this.pred_obj_score_head = new Mlp([dim, dim, dim, 1], 'relu')
  }

  forward(input: DecoderInput): DecoderOutput {
    return tidy(() => {
      const tokens = this.#tokens(input.sparse) // [B, 2 + 1 + M + n, D]
      const { dense, imageOf } = input
      const image = cells((dense.size(0) === 1 ? input.image : rows(input.image, dense.size(0), imageOf)).add(dense)) // [F or B, P, D]
      const positions = cast(cells(input.positions), image)
      const out = this.transformer.forward({ tokens, image }, { tokens, image: positions, imageOf })
      const { narrow } = this.#autocast
      const [objToken, iouToken] = [0, 1].map((i) => narrow(out.tokens.select(1, i))) as [Tensor, Tensor]
      return {
        masks: wide(this.#masks(out, input)),
        ious: wide(this.iou_prediction_head.forward(iouToken).sigmoid()),
        objScore: wide(this.pred_obj_score_head.forward(objToken)),
      }
    })
  }

  /** Object score, overlap and mask tokens, then the prompt's. */
  #tokens(sparse: Tensor): Tensor {
    const own = cat([this.obj_score_token.weight, this.iou_token.weight, this.mask_tokens.weight], { dim: 0 })
    return cat([rows(cast(own, sparse).unsqueeze(0), sparse.size(0), null), sparse], { dim: 1 })
  }

  #masks(out: Sides, input: DecoderInput): Tensor {
    const filters = this.output_hypernetworks_mlps.map((mlp, i) =>
      mlp.forward(this.#autocast.narrow(out.tokens.select(1, 2 + i))),
    )
    const pixels = this.#enlarge(out.image, input) // [B, D/8, 4e, 4e]
    const [batch, channels, height, width] = pixels.shape as [number, number, number, number]
    const hyper = cast(stack(filters, { dim: 1 }), pixels) // [B, 1 + M, D/8]
    return hyper.matmul(pixels.reshape([batch, channels, height * width])).view([batch, -1, height, width])
  }

  /** To four times the side, with the finer levels of the image added on the way. */
  #enlarge(image: Tensor, input: DecoderInput): Tensor {
    const side = input.image.size(2)
    const [first, norm, , second] = this.output_upscaling
    const { narrow, isReference } = this.#autocast
    const map = wideOnCpu(narrow(image.transpose(1, 2).reshape([image.size(0), image.size(2), side, side])))
    const finer = (conv: Conv2d, level: Tensor) => rows(conv.forward(level), map.size(0), input.imageOf)
    const doubled = narrow(first.forward(map)).add(finer(this.conv_s1, input.level1)) // [B, D/4, 2e, 2e]
    const normed = cast(narrow((isReference ? roundedNorm(norm, doubled) : norm.forward(wide(doubled))).gelu()), map)
    return narrow(second.forward(normed)).add(finer(this.conv_s0, input.level0)).gelu()
  }
}

/** LayerNorm2d as autocast runs it: the mean and the difference from it in bfloat16, squares and the rest in float32. */
function roundedNorm(norm: LayerNorm2d, x: Tensor): Tensor {
  const centred = x.sub(x.mean(1, { keepdim: true })) // bfloat16
  const spread = wide(centred).pow(2).mean(1, { keepdim: true }).add(1e-6).sqrt()
  const scaled = wide(norm.weight).view([1, -1, 1, 1]).mul(wide(centred).div(spread))
  return scaled.add(wide(norm.bias).view([1, -1, 1, 1]))
}

/** [F, D, e, e] to [F, P, D]. */
export function cells(map: Tensor): Tensor {
  return map.flatten({ startDim: 2 }).transpose(1, 2)
}
