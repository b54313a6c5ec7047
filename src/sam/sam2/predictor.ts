// SAM2 as a segmenter, as its image predictor works. B prompts of a call, S side of SAM2's input.

import { imagenetMean, imagenetStd, type RgbImage } from '../../image/index.ts'
import { cast } from '../../nn/index.ts'
import { cat, resizeMaps, type Tensor, tensor, tidyNoGrad } from '../../tensor/index.ts'
import { type ClickMask, type ClickOptions, type ClickPrompt, clickMasks, Segmenter } from '../segmenter.ts'
import type { Sam2Features, Sam2Model } from './model.ts'
import type { Sam2Prompt } from './prompt.ts'
import { chooseMask, takeMask } from './selection.ts'

/** As the official predictor keeps them between clicks. */
const logitLimit = 32

export class Sam2Predictor extends Segmenter<Sam2Features, Sam2Model> {
  get side(): number {
    return this.model.config.image_size
  }

  /** The image is stretched to the square input. */
  inputSize(): { height: number; width: number } {
    return { height: this.side, width: this.side }
  }

  protected encodeImages(images: readonly RgbImage[]): Sam2Features[] {
    const { model, side } = this
    return images.map((image) => tidyNoGrad(() => model.encodeImage(predictorInput(image, side, model.no_mem_embed))))
  }

  protected drawAlike(features: Sam2Features, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[] {
    const { height, width } = options
    const drawn = tidyNoGrad(() => {
      const decoded = this.model.decode(features, batchPrompt(prompts), { multimask: options.multimask ?? false })
      const index = options.multimask ? chooseMask(decoded.ious) : null
      const best = index ? takeMask(decoded.masks, index) : decoded.masks // [B, 1, S/4, S/4]
      const ious = index ? takeMask(decoded.ious, index) : decoded.ious
      const tokens = index ? index.add(1) : decoded.tokens!
      const bits = resizeMaps(best, height, width).gt(0).to('uint8').array() as Uint8Array
      const kept = options.keepLogits ? best.clamp({ min: -logitLimit, max: logitLimit }) : null
      return { logits: kept, bits, ious: ious.numbers(), tokens: tokens.numbers() }
    })
    return clickMasks(drawn, options)
  }
}

function batchPrompt(prompts: readonly ClickPrompt[]): Sam2Prompt {
  const [first] = prompts as [ClickPrompt]
  return {
    points: prompts.map((p) => p.points),
    labels: prompts.map((p) => p.labels),
    ...(first.box && { box: prompts.map((p) => p.box!) }),
    ...(first.previous && { maskInput: cat(prompts.map((p) => p.previous!)) }),
  }
}

/** Pixels / 255, stretched to the square on float values (bilinear, antialiased), normalised: [1, 3, S, S]. */
export function predictorInput(image: RgbImage, side: number, like: Tensor): Tensor {
  const { height, width, data } = image
  const { device } = like
  const pixels = tensor(data, [height, width, 3], { device }).to('float32').div(255).permute([2, 0, 1]).unsqueeze(0)
  const square = pixels.contiguous()._upsampleBilinear2dAa([side, side], false)
  const row = (values: readonly number[]) => tensor(Float32Array.from(values), [1, 3, 1, 1], { device })
  return cast(square.sub(row(imagenetMean)).div(row(imagenetStd)), like)
}
