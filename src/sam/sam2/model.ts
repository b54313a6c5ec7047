// SAM2 for still images: image encoder, prompt encoder, mask decoder. The memory that follows objects through a video is not
// built; its weights are recognised by `videoOnlyNames`.
//
// Precision: float32 weights give the reference's float32 numbers. With bfloat16 weights everything runs in bfloat16 except
// position codes, point embeddings, the nearest-neighbour step of the neck and the decoder's LayerNorm2d, which are computed in
// float32 and rounded once. `rounding: 'bf16-ref'` follows the reference instead, which runs under CUDA's autocast: position codes
// rounded step by step, states after a layer norm in float32. Masks, overlaps and object scores are returned in float32.
import { Mismatch } from '../../core/index.ts'
import { Module, weight } from '../../nn/index.ts'
import { int64Tensor, type Tensor, tidy } from '../../tensor/index.ts'
import { type Sam2Config, sam2Config } from './config.ts'
import { type DecoderOutput, MaskDecoder } from './mask-decoder.ts'
import { ImageEncoder } from './neck.ts'
import { autocastOf } from './precision.ts'
import { batchOf, type Sam2Prompt } from './prompt.ts'
import { PromptEncoder } from './prompt-encoder.ts'
import { stableMask } from './selection.ts'

/** Weights of a checkpoint that only video uses: kept by the loader, never computed with. Names may carry a prefix. */
export const videoOnlyNames: readonly RegExp[] = [
  /(?:^|\.)memory_attention\./,
  /(?:^|\.)memory_encoder\./,
  /(?:^|\.)obj_ptr_proj\./,
  /(?:^|\.)obj_ptr_tpos_proj\./,
  /(?:^|\.)mask_downsample\./,
  /(?:^|\.)(?:maskmem_tpos_enc|no_mem_pos_enc|no_obj_ptr|no_obj_embed_spatial)$/,
]

/** The neck's maps of images, before anything that trains: F images, D = d_model, S = image_size. */
export interface Sam2Features {
  level0: Tensor // [F, D, S/4, S/4]
  level1: Tensor // [F, D, S/8, S/8]
  level2: Tensor // [F, D, S/16, S/16]
}

export interface DecodeOptions {
  /** All proposals (masks 1 .. M of the decoder), a single mask, or the single one and the proposals. Default true. */
  multimask?: boolean | 'all'
  /** Single mask only: replace an unstable one by the best proposal, as outside of training. Default true. */
  dynamic?: boolean
  /** Which of several images each prompt is about. Without it there is one image, or one for each prompt. */
  imageOf?: readonly number[]
}

export class Sam2Model extends Module {
  readonly image_encoder: ImageEncoder
  readonly sam_prompt_encoder: PromptEncoder
  readonly sam_mask_decoder: MaskDecoder
  no_mem_embed: Tensor // [1, 1, D]
  readonly #cfg: Sam2Config

  constructor(cfg: Sam2Config = sam2Config()) {
    super()
    this.image_encoder = new ImageEncoder(cfg)
    this.sam_prompt_encoder = new PromptEncoder(cfg)
    this.sam_mask_decoder = new MaskDecoder(cfg)
    this.no_mem_embed = weight(1, 1, cfg.d_model)
    this.#cfg = cfg
  }

  get config(): Sam2Config {
    return this.#cfg
  }

  /** Normalised pixels [F, 3, S, S] to maps that may be cached: conv_s0, conv_s1 and no_mem_embed are not in them yet. */
  encodeImage(pixels: Tensor): Sam2Features {
    const { image_size: s } = this.#cfg
    if (pixels.ndim !== 4 || String(pixels.shape.slice(1)) !== String([3, s, s]))
      throw new Mismatch({ where: 'sam2', field: 'pixels', expected: `[B, 3, ${s}, ${s}]`, got: `[${pixels.shape}]` })
    const [level0, level1, level2] = this.image_encoder.forward(pixels)
    return { level0, level1, level2 }
  }

  /**
   * B prompts over one image, one image each, or the images that `imageOf` names: logits [B, M, S/4, S/4], overlaps [B, M], score [B, 1],
   * which never suppresses a mask. M is num_multimask_outputs, or 1 for a single mask.
   */
  decode(features: Sam2Features, prompt: Sam2Prompt, options: DecodeOptions = {}): DecoderOutput {
    return tidy(() => {
      const all = this.#decodeAll(features, prompt, options.imageOf)
      if (options.multimask === 'all') return all
      if (options.multimask ?? true) return part(all, 1, this.#cfg.num_multimask_outputs)
      if (!(options.dynamic ?? true)) return part(all, 0, 1)
      const { dynamic_multimask_stability_delta: delta, dynamic_multimask_stability_thresh: threshold } = this.#cfg
      return stableMask(all, delta, threshold)
    })
  }

  #decodeAll(features: Sam2Features, prompt: Sam2Prompt, of?: readonly number[]): DecoderOutput {
    const { level0, level1, level2 } = features
    const batch = batchOf(prompt)
    const images = level2.size(0)
    if (!fits(images, batch, of))
      throw new Mismatch({ where: 'sam2', field: 'features', expected: `1 image or ${batch}`, got: images })
    const { narrow } = autocastOf(this.#cfg)
    const { sparse, dense } = this.sam_prompt_encoder.forward(prompt, narrow(level2))
    const embed = this.no_mem_embed.view([1, -1, 1, 1])
    const image = narrow(level2.add(embed.dtype === level2.dtype ? embed : embed.to(level2.dtype)))
    const positions = this.sam_prompt_encoder.densePositions()
    const imageOf = of ? int64Tensor(of, { device: level2.device }) : null
    return this.sam_mask_decoder.forward({ image, level0, level1, positions, sparse, dense, imageOf })
  }
}

/** As many images as prompts are those of the prompts, one by one. */
function fits(images: number, batch: number, of: readonly number[] | undefined): boolean {
  if (!of) return images === 1 || images === batch
  return of.length === batch && of.every((i, b) => (images === batch ? i === b : i < images))
}

function part(all: DecoderOutput, start: number, length: number): DecoderOutput {
  const { masks, ious, objScore } = all
  return { masks: masks.narrow(1, start, length), ious: ious.narrow(1, start, length), objScore }
}
