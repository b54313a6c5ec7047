// MobileSAM as a segmenter. B prompts of a call.
import type { RgbImage } from '../../image/index.ts'
import { cat, type Tensor, tidyNoGrad } from '../../tensor/index.ts'
import { chooseMask, takeMask } from '../sam2/selection.ts'
import { type ClickMask, type ClickOptions, type ClickPrompt, clickMasks, Segmenter } from '../segmenter.ts'
import { type Size, samInput, samPixels, samScale } from './input.ts'
import { chooseSamMask, type SamModel, type SamPoints } from './model.ts'

export interface SamFeatures {
  embedding: Tensor // [1, 256, 64, 64]; joined [B, 256, 64, 64]
}

export class SamPredictor extends Segmenter<SamFeatures, SamModel> {
  /** One factor for both axes; the rest of the square input is padding. */
  inputSize(image: Size): Size {
    const scale = samScale(image, this.model.config.image_size)
    return { height: image.height * scale, width: image.width * scale }
  }

  /** On a GPU a pass over one image waits for the calls of its operations; one over more than 8 takes as long for each. */
  protected override readonly imagesTogether: number = this.model.device === 'cpu' ? 1 : 8

  protected encodeImages(images: readonly RgbImage[]): SamFeatures[] {
    const { image_encoder, device, config } = this.model
    return tidyNoGrad(() => {
      const inputs = images.map((image) => samInput(image, device, config.image_size))
      const maps = image_encoder.forward(joined(inputs))
      // each has memory that can be freed by itself
      return images.length === 1 ? [{ embedding: maps }] : maps.split(1).map((map) => ({ embedding: map.clone() }))
    })
  }

  protected override join(features: readonly SamFeatures[]): SamFeatures {
    return { embedding: joined(features.map(({ embedding }) => embedding)) }
  }

  protected drawAlike({ embedding }: SamFeatures, prompts: readonly ClickPrompt[], options: ClickOptions): ClickMask[] {
    const points = samPoints(prompts)
    const drawn = tidyNoGrad(() => {
      const maskInput = prompts[0]!.previous ? cat(prompts.map((p) => p.previous!)) : undefined
      const all = this.model.decode(embedding, points, maskInput)
      const index = options.multimask
        ? chooseMask(all.ious.narrow(1, 1, 3)).add(1)
        : chooseSamMask(all.ious, points.labels[0]!.length)
      const best = takeMask(all.masks, index) // [B, 1, 256, 256]
      const bits = samPixels(best, options).gt(0).to('uint8').array() as Uint8Array
      const ious = takeMask(all.ious, index).numbers()
      return { logits: options.keepLogits ? best : null, bits, ious, tokens: index.numbers() }
    })
    return clickMasks(drawn, options)
  }
}

const joined = (tensors: Tensor[]) => (tensors.length === 1 ? tensors[0]! : cat(tensors))

/** Clicks, the corners of the box, and a closing point (label -1) if there is no box. */
export function samPoints(prompts: readonly ClickPrompt[]): SamPoints {
  const ends = ({ box }: ClickPrompt): (readonly [number, number])[] => {
    return box ? [[box[0], box[1]] as const, [box[2], box[3]] as const] : [[0, 0]]
  }
  return {
    coords: prompts.map((p) => [...p.points, ...ends(p)]),
    labels: prompts.map((p) => [...p.labels, ...(p.box ? [2, 3] : [-1])]),
  }
}
