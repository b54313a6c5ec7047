// The part of every Sa2VA after its language model: text_hidden_fcs and SAM2. B prompts, S hidden size, d prompt width of SAM2.
import type { Pixels } from '../../image/index.ts'
import type { Decoder, Placement } from '../../llm/index.ts'
import { type Mask, maskFromDense } from '../../mask/index.ts'
import { Linear, Module } from '../../nn/index.ts'
import {
  chooseMask,
  maskRuns,
  type Sam2Config,
  type Sam2Features,
  Sam2Model,
  takeMask,
  toMask,
  upsampleMask,
} from '../../sam/index.ts'
import { cat, int64Tensor, type Tensor, tensor, tidy, tidyNoGrad } from '../../tensor/index.ts'
import type { DrawnMask } from '../family.ts'
import { RecordedEncoder } from '../recorded-encoder.ts'

/** Images that SAM2 encodes in one recorded pass. */
const imagesTogether = 4

export class GroundingEncoder extends Module {
  readonly sam2_model: Sam2Model
  readonly #images: RecordedEncoder

  constructor(sam: Sam2Config) {
    super()
    this.sam2_model = new Sam2Model(sam)
    this.#images = new RecordedEncoder(this.sam2_model.image_encoder, imagesTogether, (pixels) => {
      const { level0, level1, level2 } = this.sam2_model.encodeImage(pixels)
      return [level0, level1, level2]
    })
  }

  /** SAM2's features of the normalised pixels of each image. */
  encode(of: readonly Pixels[], { device, dtype }: Placement): Sam2Features {
    const side = this.sam2_model.config.image_size
    const images = of.map((pixels) => tensor(pixels, [1, 3, side, side], { device, dtype }))
    const [level0, level1, level2] = this.#images.run(images.length > 1 ? cat(images) : images[0]!)
    return { level0: level0!, level1: level1!, level2: level2! }
  }

  forgetRecordings(): void {
    this.#images.dispose()
  }

  /** Prompts [B, d] of one image, or of images named for each -> low-res logits of the best mask, or of the given choices. */
  draw(of: Sam2Features | readonly Sam2Features[], prompts: Tensor, choice?: readonly number[]): DrawnMask {
    return tidy(() => {
      const { features, imageOf } = Array.isArray(of) ? together(of) : { features: of as Sam2Features }
      const language = prompts.unsqueeze(1)
      const { masks, ious, objScore } = this.sam2_model.decode(features, { language }, { multimask: true, imageOf })
      const index = choice ? int64Tensor(choice, [choice.length], { device: masks.device }) : chooseMask(ious)
      const confidence = cat([takeMask(ious.detach(), index), objScore.detach().sigmoid()], { dim: 1 }).to('float32')
      return { logits: takeMask(masks, index).squeeze(1), choice: choice ? [...choice] : index.numbers(), confidence }
    })
  }

  /** Low-res logits [B, h, w] of one image, or of images named for each -> masks at the image's size. */
  finish(of: ImageSize | readonly ImageSize[], logits: Tensor): Mask[] {
    const sizes = Array.isArray(of)
      ? (of as readonly ImageSize[])
      : new Array<ImageSize>(logits.size(0)).fill(of as ImageSize)
    return runsOf(sizes).flatMap(([from, count]) => this.#finish(sizes[from]!, logits.narrow(0, from, count)))
  }

  #finish({ height, width }: ImageSize, logits: Tensor): Mask[] {
    const side = this.sam2_model.config.image_size
    return tidyNoGrad(() => {
      const full = upsampleMask(logits.unsqueeze(1).to('float32'), side, height, width)
      if (full.device === 'cpu') return toMask(full).map((bits) => maskFromDense(bits, height, width))
      return maskRuns(full.squeeze(1)).map((counts) => ({ height, width, counts }))
    })
  }
}

/** A model with text_hidden_fcs and SAM2 after its language model. F: its features of an image. */
export abstract class GroundedModule<F extends ImageSize & { sam: Sam2Features }> extends Module {
  abstract readonly text_hidden_fcs: HiddenLayers
  abstract readonly grounding_encoder: GroundingEncoder
  abstract get decoder(): Decoder

  get sam(): Sam2Model {
    return this.grounding_encoder.sam2_model
  }

  /** Device of the activations, and the dtype in which the frozen parts compute. */
  get placement(): Placement {
    return this.decoder.placement
  }

  /** [SEG] states [B, S] -> prompts of the mask decoder [B, d]. */
  segPrompts(hidden: Tensor): Tensor {
    return tidy(() => {
      const [first, , second] = this.text_hidden_fcs as [Linear, null, Linear]
      return second.forward(first.forward(hidden).relu())
    })
  }

  /** Prompts [B, d] of one image, or of images named for each -> low-res logits of the best mask, or of the given choices. */
  drawMasks(features: F | readonly F[], prompts: Tensor, choice?: readonly number[]): DrawnMask {
    const sam = Array.isArray(features) ? features.map((f: F) => f.sam) : (features as F).sam
    return this.grounding_encoder.draw(sam, prompts, choice)
  }

  /** Low-res logits [B, h, w] of one image, or of images named for each -> masks at the image's size. */
  finishMasks(features: F | readonly F[], logits: Tensor): Mask[] {
    return this.grounding_encoder.finish(features, logits)
  }

  /** Frees the captured graphs of the encoders, before the weights are freed. */
  forgetRecordings(): void {
    this.grounding_encoder.forgetRecordings()
  }
}

interface ImageSize {
  height: number
  width: number
}

/** Pixels that are upsampled together: a whole mask has several copies of them for a moment. */
const pixelsTogether = 2 ** 25

/** Neighbours of one size, as many as go together: [from, count]. */
function runsOf(sizes: readonly ImageSize[]): [number, number][] {
  const runs: [number, number][] = []
  for (const [i, { height, width }] of sizes.entries()) {
    const last = runs.at(-1)
    const first = last && sizes[last[0]]!
    const fits = first?.height === height && first.width === width && (last![1] + 1) * height * width <= pixelsTogether
    if (fits) last![1]++
    else runs.push([i, 1])
  }
  return runs
}

/** Features named once for each prompt, every image once, and which of them each prompt named. */
function together(named: readonly Sam2Features[]): { features: Sam2Features; imageOf?: number[] } {
  const images = [...new Set(named)]
  if (images.length === 1) return { features: images[0]! }
  const all = (level: keyof Sam2Features) => cat(images.map((f) => f[level]))
  const features = { level0: all('level0'), level1: all('level1'), level2: all('level2') }
  return { features, imageOf: named.map((f) => images.indexOf(f)) }
}

/** text_hidden_fcs of the checkpoint: two linear layers; null is the ReLU, which has no weights. */
export type HiddenLayers = (Linear | null)[]

export function hiddenLayers(hiddenSize: number, width: number): HiddenLayers {
  return [new Linear(hiddenSize, hiddenSize), null, new Linear(hiddenSize, width)]
}
