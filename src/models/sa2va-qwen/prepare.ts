// An image as Sa2VA on a Qwen-VL takes it, without any weight: may run in a decoding thread.
import { type Pixels, type PixelType, type Precision, type RgbImage, samInput } from '../../image/index.ts'
import {
  firstResize,
  type PatchedImage,
  type ProcessorConfig,
  patchResized,
  resizeForPatches,
} from '../qwen_vl/processor.ts'

export interface QwenImageInput {
  patches: PatchedImage
  /** The picture the patches were cut from; an outline is drawn on it. */
  picture: RgbImage
  samPixels: Pixels // [1, 3, sam, sam], from the original image
  height: number
  width: number
}

export interface PrepareSettings {
  processor: ProcessorConfig
  /** Area of the resized picture at most. */
  maxPixels: number
  /** Released inference resizes with qwen_vl_utils first; training, and we, do not. */
  resize: 'once' | 'twice'
  /** Side of SAM2's picture. */
  samSize: number
  precision: Precision
  /** Default float32. */
  type?: PixelType
}

export const module = import.meta.url

export function prepare(image: RgbImage, settings: PrepareSettings): QwenImageInput {
  const { processor, type } = settings
  const most = Math.min(processor.maxPixels, settings.maxPixels)
  const limits = { ...processor, maxPixels: most, minPixels: Math.min(processor.minPixels, most) }
  const picture = resizeForPatches(settings.resize === 'twice' ? firstResize(image) : image, limits)
  return {
    patches: patchResized(picture, { ...processor, type }),
    picture,
    samPixels: samInput(image, settings.samSize, settings.precision, type),
    height: image.height,
    width: image.width,
  }
}
