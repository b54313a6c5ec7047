// Sa2VA around a Qwen-VL: vision tower + language model + text_hidden_fcs + SAM2. N prompt tokens, U visual tokens, S hidden size.
// Unusual: positions have three axes; with Qwen3-VL the tower also adds to the states after the first layers, and the [SEG] state is
// the one BEFORE the final norm (transformers 4.57 records layer outputs there, and training used the same path).
import {
  commonIds,
  Decoder,
  type LlmConfig,
  type Placement,
  type PromptInputs,
  type PromptPositions,
  qwenParts,
  Trunk,
} from '../../llm/index.ts'
import type { Mask } from '../../mask/index.ts'
import { Linear, Module } from '../../nn/index.ts'
import type { Sam2Model } from '../../sam/index.ts'
import { cat, int64Tensor, noGrad, type Tensor, tidy } from '../../tensor/index.ts'
import type { DrawnMask } from '../family.ts'
import {
  generations,
  imageInputs,
  lookAt,
  type PatchedImage,
  type VisionOutput,
  type VisionTower,
  type Watch,
} from '../qwen_vl/index.ts'
import { GroundingEncoder, type HiddenLayers, hiddenLayers, segPrompts } from '../sa2va/index.ts'
import type { Sa2VAQwenConfig } from './config.ts'
import { pictureTensor, type QwenGroundedFeatures, type QwenGroundedPrompt } from './inputs.ts'
import { promptPositions } from './positions.ts'
import type { QwenImageInput } from './prepare.ts'

class QwenTrunk extends Module {
  readonly visual: VisionTower
  readonly language_model: Trunk

  constructor(cfg: Sa2VAQwenConfig) {
    super()
    this.visual = generations[cfg.base].tower(cfg.vision)
    this.language_model = new Trunk(cfg.llm, qwenParts)
  }
}

/** The whole Qwen-VL, under the names the wrapper's checkpoint has. */
class QwenInside extends Module {
  readonly model: QwenTrunk
  readonly lm_head?: Linear

  constructor(cfg: Sa2VAQwenConfig) {
    super()
    this.model = new QwenTrunk(cfg)
    const { hidden_size, vocab_size, tie_word_embeddings: tied }: LlmConfig = cfg.llm
    if (!tied) this.lm_head = new Linear(hidden_size, vocab_size, { bias: false })
  }

  get parts() {
    const { embed_tokens: embedding, layers, norm } = this.model.language_model
    return { embedding, layers, norm, head: this.lm_head ?? embedding }
  }
}

export class Sa2VAQwen extends Module {
  readonly model: QwenInside
  readonly text_hidden_fcs: HiddenLayers
  readonly grounding_encoder: GroundingEncoder
  readonly #cfg: Sa2VAQwenConfig
  readonly #decoder: Decoder

  constructor(cfg: Sa2VAQwenConfig) {
    super()
    const S = cfg.llm.hidden_size
    this.model = new QwenInside(cfg)
    this.text_hidden_fcs = hiddenLayers(S, cfg.sam.d_model)
    this.grounding_encoder = new GroundingEncoder(cfg.sam)
    this.#cfg = cfg
    this.#decoder = new Decoder(cfg.llm, this.model, { statesBeforeNorm: generations[cfg.base].segBeforeNorm })
  }

  get cfg(): Sa2VAQwenConfig {
    return this.#cfg
  }

  get decoder(): Decoder {
    return this.#decoder
  }

  get sam(): Sam2Model {
    return this.grounding_encoder.sam2_model
  }

  /** Where activations live and in which dtype the frozen parts compute. */
  get placement(): Placement {
    return this.#decoder.placement
  }

  /** With gradient to the tower where one is recorded. */
  look(image: PatchedImage, watch?: Watch): VisionOutput {
    return lookAt(this.model.model.visual, image, this.placement, watch)
  }

  /**
   * Frozen features of an image, shared by policy, EMA copy, reference and all samples. The caller owns them. `only: 'vision'` leaves
   * SAM2's encoder out: enough for captions, not for masks.
   */
  encode(image: QwenImageInput, options: { only?: 'vision' } = {}): QwenGroundedFeatures {
    return noGrad(() => this.encodeAll([image], options)[0]!)
  }

  /** Of several images: SAM2 reads them together, the tower one by one, since their grids differ. Rows are in storage order. */
  encodeAll(images: readonly QwenImageInput[], options: { only?: 'vision' } = {}): QwenGroundedFeatures[] {
    return tidy(() => {
      const of = images.map((image) => image.samPixels)
      const { level0, level1, level2 } = this.grounding_encoder.encode(of, this.placement, options.only)
      const levels = [level0, level1, level2].map((t) => t.contiguous())
      return images.map(({ patches, picture, height, width }, i) => {
        const own = levels.map((t) => (options.only ? t : t.narrow(0, i, 1))) as [Tensor, Tensor, Tensor]
        const { tokens, deepstack } = this.look(patches)
        return {
          tokens: tokens.contiguous(),
          deepstack: deepstack.map((t) => t.contiguous()),
          sam: { level0: own[0], level1: own[1], level2: own[2] },
          rows: patches.rows,
          columns: patches.columns,
          picture: pictureTensor(picture),
          height,
          width,
        }
      })
    })
  }

  promptEmbeddings(prompt: QwenGroundedPrompt): Tensor {
    return this.promptInputs(prompt).embeddings
  }

  /** Token embeddings with visual tokens in place, and what the tower adds after the first layers. */
  promptInputs({ ids, drawn, features, regions }: QwenGroundedPrompt): PromptInputs {
    return tidy(() => {
      const { tokens, deepstack } = drawn ? this.look(drawn) : features
      const [rows, ...taps] = [tokens, ...deepstack].map((t) => withCopies(t, regions)) as [Tensor, ...Tensor[]]
      return imageInputs(this.#decoder, ids, this.#cfg.image_token_id, rows, taps)
    })
  }

  promptPositions(prompt: QwenGroundedPrompt): PromptPositions {
    return promptPositions(prompt, this.#cfg.image_token_id, this.#cfg.vision.spatial_merge_size)
  }

  /** Prompts of one picture begin alike up to what is asked about it. Outlines make pictures different. */
  sharedPrefix(a: QwenGroundedPrompt, b: QwenGroundedPrompt): number {
    if (a.features !== b.features || a.drawn !== b.drawn) return 0
    const afterPicture = a.ids.indexOf(this.#cfg.image_token_id) + a.features.tokens.size(0)
    const copies = (p: QwenGroundedPrompt) => {
      const first = p.ids.indexOf(this.#cfg.image_token_id, afterPicture)
      return first < 0 ? p.ids.length : first
    }
    return Math.min(commonIds(a.ids, b.ids), copies(a), copies(b))
  }

  /** [SEG] states [B, S] -> prompts of the mask decoder [B, d]. */
  segPrompts(hidden: Tensor): Tensor {
    return segPrompts(this.text_hidden_fcs, hidden)
  }

  /** Prompts [B, d] of one image, or of images named for each -> low-res logits of the best mask, or of the given choices. */
  drawMasks(
    features: QwenGroundedFeatures | readonly QwenGroundedFeatures[],
    prompts: Tensor,
    choice?: readonly number[],
  ): DrawnMask {
    const sam = Array.isArray(features) ? features.map((f) => f.sam) : (features as QwenGroundedFeatures).sam
    return this.grounding_encoder.draw(sam, prompts, choice)
  }

  /** Frees what encoding recorded, before the weights go. */
  forgetRecordings(): void {
    this.grounding_encoder.forgetRecordings()
  }

  /** Low-res logits [B, h, w] of one image, or of images named for each -> masks at the image's size. */
  finishMasks(features: QwenGroundedFeatures | readonly QwenGroundedFeatures[], logits: Tensor): Mask[] {
    return this.grounding_encoder.finish(features, logits)
  }
}

/** Rows of the picture, then those of each region once more. */
function withCopies(rows: Tensor, regions: readonly Int32Array[]): Tensor {
  if (regions.length === 0) return rows
  const copies = regions.map((units) => rows.indexSelect(0, int64Tensor(units, { device: rows.device })))
  return cat([rows, ...copies])
}
