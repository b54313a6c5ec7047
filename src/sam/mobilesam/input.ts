// A picture and its clicks in the frame of MobileSAM's input: the longer side becomes `side` (1024), zeros fill the rest.
import { type RgbImage, resize } from '../../image/index.ts'
import { resizeMaps, type Tensor, tensor, tidy } from '../../tensor/index.ts'

/** Side of the input of the released model; its graph is fixed to it. */
export const samSide = 1024

const mean = [123.675, 116.28, 103.53]
const std = [58.395, 57.12, 57.375]

export interface Size {
  height: number
  width: number
}

/** One factor for both axes. */
export const samScale = ({ height, width }: Size, side = samSide): number => side / Math.max(height, width)

/** Size of the picture inside the input. */
export function resizedSize(size: Size, side = samSide): Size {
  const scale = samScale(size, side)
  return { height: Math.floor(size.height * scale + 0.5), width: Math.floor(size.width * scale + 0.5) }
}

/** Resized in 8 bit as Pillow does (bilinear), normalised, padded at the right and below: [1, 3, side, side]. */
export function samInput(image: RgbImage, device: string, side = samSide): Tensor {
  const { height, width } = resizedSize(image, side)
  const { data } = resize(image, width, height, 'bilinear')
  return tidy(() => {
    const row = (values: readonly number[]) => tensor(Float32Array.from(values), [1, 3, 1, 1], { device })
    const pixels = tensor(data, [1, height, width, 3], { device }).to('float32').permute([0, 3, 1, 2])
    const normalised = pixels.sub(row(mean)).div(row(std))
    return normalised.constantPadNd([0, side - width, 0, side - height]).contiguous()
  })
}

/** Low-resolution logits [B, 1, side / 4, side / 4] to the picture's size: up to the input, cut, then to the picture. */
export function samPixels(lowRes: Tensor, size: Size): Tensor {
  const side = 4 * lowRes.size(-1)
  const { height, width } = resizedSize(size, side)
  return tidy(() => {
    const whole = resizeMaps(lowRes, side, side)
    const cut = whole.narrow(2, 0, height).narrow(3, 0, width).contiguous()
    return resizeMaps(cut, size.height, size.width)
  })
}
