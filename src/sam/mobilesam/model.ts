// MobileSAM: TinyViT and SAM 1's prompt encoder and mask decoder. Field names are the checkpoint's. B prompts on one image.
import { Module } from '../../nn/index.ts'
import { type Tensor, tensor, tidy } from '../../tensor/index.ts'
import { sam2Config } from '../sam2/config.ts'
import { PromptEncoder } from '../sam2/prompt-encoder.ts'
import { SamConfig } from './config.ts'
import { type SamDecoderOutput, SamMaskDecoder } from './mask-decoder.ts'
import { TinyViT } from './tiny-vit.ts'

/** Points of B prompts as the decoder takes them: clicks, box corners (labels 2 and 3), the closing point (label -1). */
export interface SamPoints {
  /** [B][n][x, y] in the frame of the input, 0 .. 1024. */
  coords: readonly (readonly (readonly [number, number])[])[]
  /** [B][n] */
  labels: readonly (readonly number[])[]
}

export class SamModel extends Module {
  readonly image_encoder: TinyViT
  readonly prompt_encoder: PromptEncoder
  readonly mask_decoder: SamMaskDecoder
  readonly #config: SamConfig

  constructor(config: SamConfig = SamConfig.parse({})) {
    super()
    this.#config = config
    const { image_size, d_model, decoder_heads, decoder_mlp_dim } = config
    const cfg = sam2Config({ image_size, d_model, decoder_heads, decoder_mlp_dim })
    this.image_encoder = new TinyViT(config)
    this.prompt_encoder = new PromptEncoder(cfg)
    this.mask_decoder = new SamMaskDecoder(cfg)
  }

  get config(): SamConfig {
    return this.#config
  }

  get device(): string {
    return this.prompt_encoder.not_a_point_embed.weight.device
  }

  /** Prompt tokens [B, n, 256]; n may be 0. */
  embedPoints({ coords, labels }: SamPoints): Tensor {
    const [batch, count] = [labels.length, labels[0]!.length]
    const { device } = this
    return tidy(() => {
      const places = tensor(Float32Array.from(coords.flat(2)), [batch, count, 2], { device })
      const kinds = tensor(Int32Array.from(labels.flat()), [batch, count], { dtype: 'int64', device })
      return this.prompt_encoder.embedPoints(places, kinds)
    })
  }

  /** All four masks of each prompt. `maskInput`: logits of earlier masks [B, 1, 256, 256], not clamped. */
  decode(image: Tensor, points: SamPoints, maskInput?: Tensor): SamDecoderOutput {
    return tidy(() =>
      this.mask_decoder.forward({
        image,
        positions: this.prompt_encoder.densePositions(),
        sparse: this.embedPoints(points),
        dense: this.prompt_encoder.embedMask(maskInput),
      }),
    )
  }
}

/** Which of the four masks is taken: with up to two points the best proposal, otherwise mask 0. ious [B, 4] to [B]. */
export function chooseSamMask(ious: Tensor, points: number): Tensor {
  const single = points <= 2 ? -1 : 1
  return tidy(() => {
    const bonus = tensor(Float32Array.from([single * 500, 0, 0, 0]), { device: ious.device })
    return ious.detach().add(bonus).argmax({ dim: 1 })
  })
}
