// Sa2VA around a Qwen-VL: vision tower + language model + text_hidden_fcs + SAM2. N prompt tokens, U visual tokens, S hidden size.
// Unusual: positions have three axes. With Qwen3-VL the tower also adds to the states after the first layers, and the [SEG] state is
// the one BEFORE the final norm: transformers 4.57 records layer outputs there, also in training.
import {
  commonIds,
  Decoder,
  type LlmConfig,
  type PromptInputs,
  type PromptPositions,
  qwenParts,
  Trunk,
} from '../../llm/index.ts'
import { Linear, Module } from '../../nn/index.ts'
import { cat, int64Tensor, noGrad, type Tensor, tidy } from '../../tensor/index.ts'
import {
  generations,
  imageInputs,
  lookAt,
  lookAtAll,
  type PatchedImage,
  type VisionOutput,
  type VisionTower,
  type Watch,
} from '../qwen_vl/index.ts'
import { GroundedModule, GroundingEncoder, type HiddenLayers, hiddenLayers } from '../sa2va/index.ts'
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

export class Sa2VAQwen extends GroundedModule<QwenGroundedFeatures> {
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

  /** With a gradient to the tower, if gradients are enabled. */
  look(image: PatchedImage, watch?: Watch): VisionOutput {
    return lookAt(this.model.model.visual, image, this.placement, watch)
  }

  /** Frozen features of an image, shared by policy, EMA copy, reference and all samples. The caller owns them. */
  encode(image: QwenImageInput): QwenGroundedFeatures {
    return noGrad(() => this.encodeAll([image])[0]!)
  }

  /** Of several images. Rows are in storage order. */
  encodeAll(images: readonly QwenImageInput[]): QwenGroundedFeatures[] {
    return tidy(() => {
      const of = images.map((image) => image.samPixels)
      const { level0, level1, level2 } = this.grounding_encoder.encode(of, this.placement)
      const levels = [level0, level1, level2].map((t) => t.contiguous())
      const seen = lookAtAll(
        this.model.model.visual,
        images.map((image) => image.patches),
        this.placement,
      )
      return images.map((image, i) => {
        const own = levels.map((t) => t.narrow(0, i, 1)) as [Tensor, Tensor, Tensor]
        return { ...seen[i]!, sam: { level0: own[0], level1: own[1], level2: own[2] }, ...placeOf(image) }
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
}

/** What features keep of an image besides tensors of the encoders. */
export function placeOf({ patches: { rows, columns }, picture, height, width }: QwenImageInput) {
  return { rows, columns, picture: pictureTensor(picture), height, width }
}

/** Rows of the picture, then those of each region once more. */
function withCopies(rows: Tensor, regions: readonly Int32Array[]): Tensor {
  if (regions.length === 0) return rows
  const copies = regions.map((units) => rows.indexSelect(0, int64Tensor(units, { device: rows.device })))
  return cat([rows, ...copies])
}
