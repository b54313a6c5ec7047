// A picture and its clicks in the frame of MobileSAM's input: the longer side becomes `side` (1024), zeros fill the rest.
import { axisOf, type RgbImage, resize, weightBits } from '../../image/index.ts'
import { aten, resizeMaps, type Tensor, tensor, tidy } from '../../tensor/index.ts'

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
  return tidy(() => {
    const row = (values: readonly number[]) => tensor(Float32Array.from(values), [1, 3, 1, 1], { device })
    const pixels =
      device === 'cpu'
        ? planes(resize(image, width, height, 'bilinear'), device)
        : resizePlanes(planes(image, device), height, width)
    const normalised = pixels.to('float32').sub(row(mean)).div(row(std))
    return normalised.constantPadNd([0, side - width, 0, side - height]).contiguous()
  })
}

/** [1, 3, height, width] */
export function planes({ data, height, width }: RgbImage, device: string): Tensor {
  return tensor(data, [1, height, width, 3], { device }).permute([0, 3, 1, 2])
}

/** `resize` with the filter 'bilinear' as tensor operations, bit for bit: for a GPU, where it takes a tenth of the time. */
export function resizePlanes(pixels: Tensor, height: number, width: number): Tensor {
  return tidy(() => resizeAlong(resizeAlong(pixels.to('int32'), 3, width), 2, height))
}

/** Sums of whole numbers, rounded to 8 bit; the weights are not negative, so nothing has to be clipped. */
function resizeAlong(x: Tensor, dim: 2 | 3, size: number): Tensor {
  if (x.size(dim) === size) return x
  const { taps, first, weights } = axisOf(x.size(dim), size, 'bilinear')
  const { device } = x
  const tap = (k: number) => {
    const at = first.map((pixel) => Math.min(pixel + k, x.size(dim) - 1)) // beyond the end the weight is 0
    const weight = first.map((_, i) => weights[i * taps + k]!)
    const values = x.indexSelect(dim, tensor(at, { device }))
    return values.mul(tensor(weight, dim === 3 ? [size] : [size, 1], { device }))
  }
  const sum = Array.from({ length: taps }, (_, k) => tap(k)).reduce((a, b) => a.add(b))
  return aten('bitwise_right_shift.Tensor_Scalar', sum.add(2 ** (weightBits - 1)), weightBits) as Tensor
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
