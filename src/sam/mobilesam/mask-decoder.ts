// SAM 1's mask decoder: SAM2's without object score, finer levels and stability rule. B prompts, n tokens, D = 256, e = 64.
import { ConvTranspose2d, LayerNorm2d, Module, WeightOnly } from '../../nn/index.ts'
import { cat, stack, type Tensor, tidy } from '../../tensor/index.ts'
import type { Sam2Config } from '../sam2/config.ts'
import { cells, type DecoderInput, TwoWayTransformer } from '../sam2/mask-decoder.ts'
import { Mlp } from '../sam2/mlp.ts'

/** Of one image: F is 1. */
export type SamDecoderInput = Pick<DecoderInput, 'image' | 'positions' | 'sparse' | 'dense'>

/** All four masks: logits [B, 4, 4e, 4e] and predicted overlaps [B, 4], which may be above 1. */
export interface SamDecoderOutput {
  masks: Tensor
  ious: Tensor
}

export class SamMaskDecoder extends Module {
  readonly transformer: TwoWayTransformer
  readonly iou_token: WeightOnly
  readonly mask_tokens: WeightOnly
  readonly output_upscaling: [ConvTranspose2d, LayerNorm2d, null, ConvTranspose2d]
  readonly output_hypernetworks_mlps: Mlp[]
  readonly iou_prediction_head: Mlp

  constructor(cfg: Sam2Config) {
    super()
    const { d_model: dim, num_multimask_outputs } = cfg
    const masks = num_multimask_outputs + 1
    this.transformer = new TwoWayTransformer(cfg)
    this.iou_token = new WeightOnly(1, dim)
    this.mask_tokens = new WeightOnly(masks, dim)
    const enlarge = (from: number, to: number) => new ConvTranspose2d(from, to, 2, { stride: 2 })
    this.output_upscaling = [enlarge(dim, dim / 4), new LayerNorm2d(dim / 4), null, enlarge(dim / 4, dim / 8)]
    this.output_hypernetworks_mlps = Array.from({ length: masks }, () => new Mlp([dim, dim, dim, dim / 8], 'relu'))
    this.iou_prediction_head = new Mlp([dim, dim, dim, masks], 'relu')
  }

  forward(input: SamDecoderInput): SamDecoderOutput {
    return tidy(() => {
      const batch = input.sparse.size(0)
      const own = cat([this.iou_token.weight, this.mask_tokens.weight], { dim: 0 }).unsqueeze(0)
      const tokens = cat([own.expand([batch, own.size(1), own.size(2)]), input.sparse], { dim: 1 }) // [B, 5 + n, D]
      const image = cells(input.image.add(input.dense)) // [1 or B, e * e, D]
      const at = { tokens, image: cells(input.positions), imageOf: null }
      const out = this.transformer.forward({ tokens, image }, at)
      return { masks: this.#masks(out), ious: this.iou_prediction_head.forward(out.tokens.select(1, 0)) }
    })
  }

  #masks({ tokens, image }: { tokens: Tensor; image: Tensor }): Tensor {
    const filters = this.output_hypernetworks_mlps.map((mlp, i) => mlp.forward(tokens.select(1, 1 + i)))
    const pixels = this.#enlarge(image) // [B, D/8, 4e, 4e]
    const [batch, channels, height, width] = pixels.shape as [number, number, number, number]
    const products = stack(filters, { dim: 1 }).matmul(pixels.reshape([batch, channels, height * width]))
    return products.view([batch, -1, height, width])
  }

  #enlarge(image: Tensor): Tensor {
    const side = Math.sqrt(image.size(1))
    const [first, norm, , second] = this.output_upscaling
    const map = image.transpose(1, 2).reshape([image.size(0), image.size(2), side, side])
    return second.forward(norm.forward(first.forward(map)).gelu()).gelu()
  }
}
