// MobileSAM as a run sees it: the image encoder and the prompt encoder are frozen, the mask decoder trains. Always float32.
import type { RgbImage } from '../../image/index.ts'
import type { Placement } from '../../llm/index.ts'
import { type Mask, maskFromDense } from '../../mask/index.ts'
import {
  type ClickPrompt,
  chooseSamMask,
  exportSam,
  openSam,
  type SamModel,
  SamPredictor,
  samFolder,
  samPixels,
  samPoints,
  samScale,
  toMask,
} from '../../sam/index.ts'
import { type Tensor, tidy, tidyNoGrad } from '../../tensor/index.ts'
import type { PromptableFamily } from '../family.ts'

/** The embedding of an image [1, 256, 64, 64], and the image's size. */
export interface SamPicture {
  embedding: Tensor
  height: number
  width: number
}

export class MobileSamFamily implements PromptableFamily<RgbImage, SamPicture> {
  readonly name = 'mobilesam'
  readonly dir: string
  readonly module: SamModel
  /**
   * What draws the masks. The transformer before it also decides which of the proposed masks is chosen; if it trained, random steps
   * alone would change the choice.
   */
  readonly groups = { mask_decoder: [/^mask_decoder\.output_(?:upscaling|hypernetworks_mlps)\./] } as const
  readonly #predictor: SamPredictor

  constructor(dir: string, module: SamModel) {
    this.dir = dir
    this.module = module
    this.#predictor = new SamPredictor(module)
  }

  static open(path: string, { device }: { device?: string } = {}): MobileSamFamily {
    const dir = samFolder(path)!
    return new MobileSamFamily(dir, openSam(dir, device ? { device } : {}))
  }

  get config() {
    return this.module.config
  }

  get placement(): Placement {
    return { device: this.module.device, dtype: 'float32' }
  }

  prepare(image: RgbImage): RgbImage {
    return image
  }

  encode(images: readonly RgbImage[]): SamPicture[] {
    const read = this.#predictor.encodeAll(images)
    return images.map((image, i) => this.featuresOf({ ...read[i] }, image))
  }

  tensorsOf({ embedding }: SamPicture): Record<string, Tensor> {
    return { embedding }
  }

  featuresOf(tensors: Readonly<Record<string, Tensor>>, { height, width }: Pick<RgbImage, 'height' | 'width'>) {
    return { embedding: tensors['embedding']!, height, width }
  }

  drawPrompt(features: SamPicture, prompt: ClickPrompt, choice?: number): { logits: Tensor; choice: number } {
    return tidy(() => {
      const points = samPoints([scaled(prompt, samScale(features, this.config.image_size))])
      const { masks, ious } = this.module.decode(features.embedding, points)
      const output = choice ?? chooseSamMask(ious, points.labels[0]!.length).item()
      return { logits: masks.select(1, output), choice: output }
    })
  }

  finishPrompts({ height, width }: SamPicture, logits: Tensor): Mask[] {
    const bits = tidyNoGrad(() => toMask(samPixels(logits.unsqueeze(1), { height, width })))
    return bits.map((mask) => maskFromDense(mask, height, width))
  }

  export(dir: string): string[] {
    return exportSam(this.module, dir)
  }
}

/** A prompt in the image's pixels, in the frame of the input. */
function scaled({ points, labels, box }: ClickPrompt, scale: number): ClickPrompt {
  const move = ([x, y]: readonly [number, number]): [number, number] => [x * scale, y * scale]
  return { points: points.map(move), labels, box: box && [...move([box[0], box[1]]), ...move([box[2], box[3]])] }
}
